"""Residual connection around a sublayer."""

from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention import Explanation, Streams
from structattn.operators.common.dropout import dropout

HiddenStates = Float[Tensor, "*batch d_model"] | Streams
Memory = Float[Tensor, "memory source d_model"] | Streams
SublayerArgument = Tensor | Streams | None  # lengths or memory


class Residual(nn.Module):
    """A sublayer f with a residual connection, and optionally layer norm and dropout.

    "pre": y = x + Dropout(f(LayerNorm(x))) (DuSell & Chiang 2024, equations 14 to 16); "post":
    y = LayerNorm(x + Dropout(f(x))) (Vaswani et al. 2017). Each of two streams has its own sum.

    Args:
        layer: f; called with all arguments of the residual.
        norm: the layer norm, for both streams if x has two; None: no norm.
        norm_placement: before f ("pre") or after the sum ("post").
        dropout: rate for f's output.
    """

    layer: Any  # an nn.Module of any kind

    def __init__(
        self,
        layer: nn.Module,
        norm: nn.Module | None = None,
        norm_placement: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm_placement, self.dropout = norm_placement, dropout
        self.norm = norm
        self.layer = layer

    def forward(self, x: HiddenStates, *arguments: SublayerArgument) -> HiddenStates:
        """Process whole sequences; ``arguments`` of f after x are the lengths, or a memory and both lengths."""
        return self._add_residual(x, self.layer(self._normalized(x), *arguments))

    def attend(self, x: HiddenStates, *arguments: SublayerArgument) -> tuple[HiddenStates, Tensor | None]:
        """Return the output and f's weights, None if f has no ``attend``."""
        if not hasattr(self.layer, "attend"):
            return self(x, *arguments), None
        y, weights = self.layer.attend(self._normalized(x), *arguments)
        return self._add_residual(x, y), weights

    def step(self, x_t: HiddenStates, state: Any) -> tuple[HiddenStates, Any]:
        """Process one position; return its output and f's new state."""
        y_t, state = self.layer.step(self._normalized(x_t), state)
        return self._add_residual(x_t, y_t), state

    def explain(self, x: HiddenStates, *arguments: SublayerArgument) -> Explanation:
        """Return f's attention weights for ``x``."""
        explanation: Explanation = self.layer.explain(self._normalized(x), *arguments)
        return explanation

    def _normalized(self, x: HiddenStates) -> HiddenStates:
        return self.norm(x) if self.norm is not None and self.norm_placement == "pre" else x

    def _add_residual(self, x: HiddenStates, y: HiddenStates) -> HiddenStates:
        sums = Streams(*map(self._sum, x, y)) if isinstance(x, Streams) else self._sum(x, y)
        return self.norm(sums) if self.norm is not None and self.norm_placement == "post" else sums

    def _sum(self, x: Tensor, y: Any) -> Tensor:
        return x + dropout(y, self.dropout, self.training)
