"""Linear maps into the heads of an attention layer and out of them."""

from jaxtyping import Float
from torch import Tensor, nn


def head_size(d_model: int, num_heads: int) -> int:
    """The size of one head, d / H.

    Raises:
        ValueError: H does not divide d.
    """
    if num_heads < 1 or d_model % num_heads:
        raise ValueError(f"{num_heads} heads do not divide the width {d_model}")
    return d_model // num_heads


class IntoHeads(nn.Linear):
    """One linear map for several things that each head needs: queries, keys, values, or some of them.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        parts: how many things; the map has ``parts`` * d outputs.
        bias: whether it has one.
    """

    def __init__(self, d_model: int, num_heads: int, parts: int, bias: bool = True) -> None:
        self.size = head_size(d_model, num_heads)
        super().__init__(d_model, parts * d_model, bias)
        self.num_heads, self.parts = num_heads, parts

    def forward(  # type: ignore[override]  # one tensor for each part
        self, x: Float[Tensor, "batch time d_model"]
    ) -> tuple[Float[Tensor, "batch heads time size"], ...]:
        """As many tensors as there are parts, in their order."""
        packed = super().forward(x).view(*x.shape[:2], self.parts, self.num_heads, self.size)
        return packed.permute(2, 0, 3, 1, 4).unbind(0)


class OutOfHeads(nn.Linear):
    """What the heads read, side by side, mapped to the layer's output: W_O concat(r_1, .., r_H) + b.

    Args:
        d_model: d.
        bias: whether there is a b.
    """

    def __init__(self, d_model: int, bias: bool = True) -> None:
        super().__init__(d_model, d_model, bias)

    def forward(self, readings: Float[Tensor, "batch heads time size"]) -> Float[Tensor, "batch time d_model"]:
        """The output for the readings of all heads."""
        return super().forward(readings.transpose(1, 2).flatten(2))
