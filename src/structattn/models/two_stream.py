"""Modules for hidden states of two streams: g, which determines the attention scores, and h, the content."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from structattn.attention import Explanation, Streams
from structattn.support.shapes import Float, Lengths

if TYPE_CHECKING:
    from structattn.attention import TwoStreamAttention


class EachStream(nn.Module):
    """Apply a separate module to each stream."""

    def __init__(self, syntactic: nn.Module, semantic: nn.Module) -> None:
        super().__init__()
        self.syntactic, self.semantic = syntactic, semantic

    def forward(self, x: Streams) -> Streams:
        """Return both outputs."""
        return Streams(self.syntactic(x.syntactic), self.semantic(x.semantic))


class SemanticStream(nn.Module):
    """Select h, from which the model predicts (the Discrete Transformer paper, section 5).

    Args:
        norm: applied to h; None: identity.
    """

    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Streams) -> Tensor:
        """Return h, normalised."""
        return x.semantic if self.norm is None else self.norm(x.semantic)


def layer_norm(d_model: int, two_streams: bool) -> nn.Module:
    """Return a layer norm, or one for each stream."""
    return EachStream(nn.LayerNorm(d_model), nn.LayerNorm(d_model)) if two_streams else nn.LayerNorm(d_model)


class FeedForwardFirst(nn.Module):
    """y = attention(FFN(x)) of two streams (the Discrete Transformer paper, sections 3 and 5).

    In a ``Block`` without norms and other sublayers this is the layer of the equations:
    B = FFN_g(g), C = FFN_h(h); g' = g + A V and h' = h + V'_z with K, V, Q from B and V' from C.

    Args:
        feedforward: a map of each position for each stream.
        attention: self-attention.
    """

    def __init__(self, feedforward: nn.Module, attention: "TwoStreamAttention") -> None:
        super().__init__()
        self.feedforward, self.attention = feedforward, attention

    def forward(self, x: Streams, lengths: Lengths = None) -> Streams:
        """Process whole sequences of both streams (B, T, d)."""
        y: Streams = self.attention(self.feedforward(x), lengths)
        return y

    def attend(self, x: Streams, lengths: Lengths = None) -> tuple[Streams, Float[Tensor, "batch heads time time"]]:
        """Return the output and the weights of the semantic stream."""
        return self.attention.attend(self.feedforward(x), lengths)

    def initial_state(self, batch_size: int) -> Any:
        """Return the state of the attention before the first step."""
        return self.attention.initial_state(batch_size)

    def step(self, x_t: Streams, state: Any) -> tuple[Streams, Any]:
        """Process one position of both streams (B, d)."""
        return self.attention.step(self.feedforward(x_t), state)

    def explain(self, x: Streams, lengths: Lengths = None) -> Explanation:
        """Return the weights of the attention."""
        return self.attention.explain(self.feedforward(x), lengths)
