"""Modules for hidden states of two streams: g, which determines the attention scores, and h, the content."""

from torch import Tensor, nn

from structattn.attention import Streams


class EachStream(nn.Module):
    """Apply a separate module to each stream.

    Args:
        syntactic: for g.
        semantic: for h.
    """

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
