"""Linear projections into and out of attention heads, and positions that act on queries and keys."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention.positions.biases import ScorePositions
from structattn.operators.common.checks import head_size, wrong_width
from structattn.support.shapes import Float
from structattn.support.sizes import require_positive


class Projection(nn.Linear):
    """A linear projection of a layer's input.

    Raises:
        ValueError: the width is 0.
    """

    def __init__(self, d_model: int, size: int, bias: bool = True, **factory: Any) -> None:
        require_positive(d_model=d_model)
        super().__init__(d_model, size, bias, **factory)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch size"]:
        """Return the projection.

        Raises:
            ValueError: the input has another width.
        """
        if x.shape[-1] != self.in_features:
            raise wrong_width(x, self.in_features)
        return F.linear(x, self.weight, self.bias)


class InputProjection(nn.Linear):
    """One linear projection that computes several tensors for each head: queries, keys, values, or some of them.

    Args:
        num_heads: H, which must divide d.
        parts: the number of tensors; the projection has ``parts`` * d outputs.
    """

    def __init__(self, d_model: int, num_heads: int, parts: int, bias: bool = True, **factory: Any) -> None:
        self.size = head_size(d_model, num_heads)
        super().__init__(d_model, parts * d_model, bias, **factory)
        self.num_heads, self.parts = num_heads, parts

    def forward(  # type: ignore[override]  # returns a tuple
        self, x: Float[Tensor, "batch time d_model"]
    ) -> tuple[Float[Tensor, "batch heads time size"], ...]:
        """Return the ``parts`` tensors.

        Raises:
            ValueError: the input has another width.
        """
        if x.shape[-1] != self.in_features:
            raise wrong_width(x, self.in_features)
        packed = F.linear(x, self.weight, self.bias).view(*x.shape[:2], self.parts, self.num_heads, self.size)
        return packed.permute(2, 0, 3, 1, 4).unbind(0)


def one_position(x_t: Tensor) -> Tensor:
    """Return a step's input (B, d) as a sequence of one position, (B, 1, d).

    Raises:
        ValueError: it has not two dimensions.
    """
    if x_t.dim() != 2:
        raise ValueError(f"the step has shape {tuple(x_t.shape)}; expected (B, d)")
    return x_t[:, None]


class OutputProjection(nn.Linear):
    """Concatenates the outputs of all heads and projects them: W_O concat(o_1, .., o_H) + b.

    Args:
        d_model: d.
        inputs: the size of all heads together; None: d.
    """

    def __init__(self, d_model: int, bias: bool = True, inputs: int | None = None, **factory: Any) -> None:
        super().__init__(d_model if inputs is None else inputs, d_model, bias, **factory)

    def forward(self, outputs: Float[Tensor, "batch heads time size"]) -> Float[Tensor, "batch time d_model"]:
        """Return the layer's output."""
        return F.linear(outputs.transpose(1, 2).flatten(2), self.weight, self.bias)


class ConcatenatedHeads(nn.Module):
    """Concatenates the outputs of all heads, without a projection."""

    def forward(self, outputs: Float[Tensor, "batch heads time size"]) -> Float[Tensor, "batch time d_model"]:
        """Return the layer's output."""
        return outputs.transpose(1, 2).flatten(2)


def apply_positions(
    positions: ScorePositions | None, query: Tensor, key: Tensor, first: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return query', key' and bias; the arguments and None if ``positions`` is None."""
    return (query, key, None) if positions is None else positions(query, key, first)
