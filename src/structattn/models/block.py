"""One layer of a transformer: attention, then feed-forward, each with its residual connection."""

from collections.abc import Callable
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention import AttentionLayer, Explanation
from structattn.models.feedforward import FeedForward
from structattn.operators.common.dropout import dropout


class Block(nn.Module):
    """Two residual sublayers (DuSell & Chiang 2024, section 5, equations 14 to 16).

    Before the sublayer ("pre"): y = x + Dropout(f(LayerNorm(x))); after it ("post"): y = LayerNorm(x + Dropout(f(x))).

    Args:
        width: d.
        attention: the first sublayer's f, a module that is an ``AttentionLayer``.
        feedforward_width: hidden units of the second one's.
        dropout: rate for the outputs of both sublayers and for the hidden units. What is dropped inside the attention
            is the attention's own affair.
        norm: where the layer norm stands.
    """

    attention: AttentionLayer

    def __init__(
        self,
        width: int,
        attention: AttentionLayer,
        feedforward_width: int,
        dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm={norm!r}; expected 'pre' or 'post'")
        self.dropout, self.norm = dropout, norm
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, feedforward_width, dropout)

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """A whole sequence."""
        x = self._residual(x, self.attention_norm, lambda h: self.attention(h, lengths))
        return self._residual(x, self.feedforward_norm, self.feedforward)

    def initial_state(self, batch_size: int) -> Any:
        """The attention's state before the first step."""
        return self.attention.initial_state(batch_size)

    def step(self, x_t: Float[Tensor, "batch width"], state: Any) -> tuple[Float[Tensor, "batch width"], Any]:
        """One more position, and the attention's state after it."""
        states = []

        def attend(h: Tensor) -> Tensor:
            y, new_state = self.attention.step(h, state)
            states.append(new_state)
            return y

        x_t = self._residual(x_t, self.attention_norm, attend)
        return self._residual(x_t, self.feedforward_norm, self.feedforward), states[0]

    def explain(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """What the attention attends to when the block is given ``x``."""
        return self.attention.explain(self.attention_norm(x) if self.norm == "pre" else x, lengths)

    def _residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm == "pre":
            return x + dropout(sublayer(norm(x)), self.dropout, self.training)
        y: Tensor = norm(x + dropout(sublayer(x), self.dropout, self.training))
        return y
