"""Rotary positions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention.positions.sinusoidal import Layout

_ROWS_KEPT = 1024


class RotaryPositions(nn.Module):
    """Queries and keys are turned by angles that grow with their positions (Su et al. 2021, section 3.2).

    Pair i of the components of the vector at position t, read as a point of the plane, is turned by the angle
    t * base^(-2i / D). A product q'_t . k'_s then depends on t - s only. No parameters; angles in float64, products in
    float32 or better.

    Args:
        size: D, the size of a head; even.
        base: of the frequencies.
        layout: pair i holds components 2i and 2i + 1 ("interleaved"), or i and i + D / 2 ("halves").
    """

    turns: Tensor

    def __init__(self, size: int, base: float = 10000.0, layout: Layout = "interleaved") -> None:
        super().__init__()
        if size < 2 or size % 2:
            raise ValueError(f"size={size}; expected an even one, because components are turned in pairs")
        if layout not in ("interleaved", "halves"):
            raise ValueError(f"layout={layout!r}; expected 'interleaved' or 'halves'")
        self.layout, self.base, self.size = layout, base, size
        self.register_buffer("turns", _turns(0, _ROWS_KEPT, size, base), persistent=False)

    def forward(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, None]:
        """The query and the key turned; no bias. Cost: O(B * H * (T + S) * D)."""
        return self._turned(query, first), self._turned(key, 0), None

    def _turned(self, x: Tensor, first: int) -> Tensor:
        if x.shape[-1] != self.size:
            raise ValueError(f"heads of size {x.shape[-1]}; these rotary positions were made for {self.size}")
        axis = -1 if self.layout == "interleaved" else -2
        pairs = (self.size // 2, 2) if axis == -1 else (2, self.size // 2)
        a, b = x.reshape(*x.shape[:-1], *pairs).unbind(axis)
        precision = torch.promote_types(x.dtype, torch.float32)
        cos, sin = self._rows(first, x.shape[2]).to(x.device, precision).unbind(0)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=axis).flatten(-2).to(x.dtype)

    def _rows(self, first: int, count: int) -> Tensor:
        if first + count <= _ROWS_KEPT:
            return self.turns[:, first : first + count]
        return _turns(first, count, self.size, self.base)


def _turns(first: int, count: int, size: int, base: float) -> Float[Tensor, "2 count pair"]:
    """Cosines and sines of the angles at positions ``first`` to ``first + count - 1``, in float64."""
    exponents = torch.arange(0, size, 2, dtype=torch.float64) / size
    angles = torch.arange(first, first + count, dtype=torch.float64)[:, None] * base**-exponents
    return torch.stack([torch.cos(angles), torch.sin(angles)])
