"""Linear projections into and out of attention heads, and positions that act on queries and keys."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention.positions.biases import ScorePositions
from structattn.operators.common.checks import wrong_width
from structattn.support.shapes import Float
from structattn.support.sizes import require_positive


class InputProjection(nn.Linear):
    """A linear projection of a layer's input, such as to the queries, keys and values of all heads.

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


def split_heads(
    packed: Float[Tensor, "batch time parts_heads_size"], num_heads: int, parts: int = 1
) -> tuple[Float[Tensor, "batch heads time size"], ...]:
    """Return the ``parts`` tensors, such as queries, keys and values, that one projection computes for all heads."""
    size = packed.shape[2] // (parts * num_heads)
    return packed.view(*packed.shape[:2], parts, num_heads, size).permute(2, 0, 3, 1, 4).unbind(0)


def concatenate_heads(outputs: Float[Tensor, "batch heads time size"]) -> Float[Tensor, "batch time heads_size"]:
    """Return concat(o_1, .., o_H)."""
    return outputs.transpose(1, 2).flatten(2)


def one_position(x_t: Tensor) -> Tensor:
    """Return a step's input (B, d) as a sequence of one position, (B, 1, d).

    Raises:
        ValueError: it has not two dimensions.
    """
    if x_t.dim() != 2:
        raise ValueError(f"the step has shape {tuple(x_t.shape)}; expected (B, d)")
    return x_t[:, None]


class OutputProjection(nn.Linear):
    """The linear projection of the concatenated outputs of all heads, W_O concat(o_1, .., o_H) + b."""


class NoOutputProjection(nn.Identity):
    """Stands for an ``OutputProjection``, with its arguments: returns the concatenated outputs as they are."""


def apply_positions(
    positions: ScorePositions | None, query: Tensor, key: Tensor, first: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return query', key' and bias; the arguments and None if ``positions`` is None."""
    return (query, key, None) if positions is None else positions(query, key, first)
