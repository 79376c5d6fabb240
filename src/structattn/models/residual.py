"""A residual connection around any sublayer."""

from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention import Explanation, Streams
from structattn.operators.common.dropout import dropout

Vectors = Float[Tensor, "*batch d_model"] | Streams
Memory = Float[Tensor, "memory source d_model"] | Streams
Seen = Tensor | Streams | None  # what a sublayer takes besides: lengths, a memory


class Residual(nn.Module):
    """A sublayer f with its residual connection, and perhaps a layer norm and dropout.

    "pre": y = x + Dropout(f(LayerNorm(x))) (DuSell & Chiang 2024, equations 14 to 16); "post":
    y = LayerNorm(x + Dropout(f(x))) (Vaswani et al. 2017). Two streams are added each to its own.

    Args:
        layer: f; called with x and with whatever else the residual is called with.
        norm: the layer norm, of both streams where x has two; None: there is none.
        place: where it stands.
        dropout: rate for f's output. What is dropped inside of f is f's own affair.
    """

    layer: Any  # an nn.Module of any kind

    def __init__(
        self,
        layer: nn.Module,
        norm: nn.Module | None = None,
        place: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.place, self.dropout = place, dropout
        self.norm = norm
        self.layer = layer

    def forward(self, x: Vectors, *seen: Seen) -> Vectors:
        """A whole sequence; ``seen`` is what f takes besides: lengths, or a memory and both lengths."""
        return self._added(x, self.layer(self._entering(x), *seen))

    def attend(self, x: Vectors, *seen: Seen) -> tuple[Vectors, Tensor | None]:
        """What ``forward`` gives, and the weights with which f read, where it hands them out (``AttendingLayer``)."""
        if not hasattr(self.layer, "attend"):
            return self(x, *seen), None
        y, weights = self.layer.attend(self._entering(x), *seen)
        return self._added(x, y), weights

    def step(self, x_t: Vectors, state: Any) -> tuple[Vectors, Any]:
        """One more position, and f's state after it."""
        y_t, state = self.layer.step(self._entering(x_t), state)
        return self._added(x_t, y_t), state

    def explain(self, x: Vectors, *seen: Seen) -> Explanation:
        """What f attends to when the residual is given ``x``."""
        explanation: Explanation = self.layer.explain(self._entering(x), *seen)
        return explanation

    def _entering(self, x: Vectors) -> Vectors:
        return self.norm(x) if self.norm is not None and self.place == "pre" else x

    def _added(self, x: Vectors, y: Vectors) -> Vectors:
        sums = Streams(*map(self._sum, x, y)) if isinstance(x, Streams) else self._sum(x, y)
        return self.norm(sums) if self.norm is not None and self.place == "post" else sums

    def _sum(self, x: Tensor, y: Any) -> Tensor:
        return x + dropout(y, self.dropout, self.training)
