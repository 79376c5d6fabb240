"""Rotary positions."""

import torch
from torch import Tensor
from torch.types import Device

from structattn.attention.positions.absolute import ComputedTable, Layout, require_base
from structattn.support.shapes import Float

_NUM_CACHED_POSITIONS = 1024


class RotaryPositions(ComputedTable):
    """Rotate queries and keys by angles proportional to their positions (Su et al. 2021, section 3.2).

    Pair i of the components of the vector at position t is rotated by the angle t * base^(-2i / D), so that the product
    q'_t . k'_s depends on t - s only. No parameters; angles are computed in float64, products in float32 or better.

    Args:
        size: D, the size of a head; even.
        base: of the frequencies.
        layout: pair i is components 2i and 2i + 1 ("interleaved"), or i and i + D / 2 ("halves").
        device, dtype: as for other layers; the table is float64 with any dtype.
    """

    table_dtype = torch.float64  # of cosines and sines

    def __init__(
        self,
        size: int,
        base: float = 10000.0,
        layout: Layout = "interleaved",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if size < 2 or size % 2:
            raise ValueError(f"size={size}; expected an even head size, because components are rotated in pairs")
        if layout not in ("interleaved", "halves"):
            raise ValueError(f"layout={layout!r}; expected 'interleaved' or 'halves'")
        require_base(base)
        self.layout, self.base, self.size = layout, base, size
        self.keep_table(device, dtype)

    def computed_table(self, device: Device) -> Tensor:
        """Return cosines and sines at the first positions."""
        return _rotations(0, _NUM_CACHED_POSITIONS, self.size, self.base, device)

    def forward(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, None]:
        """Return the rotated query and key, and no bias. Cost: O(B * H * (T + S) * D)."""
        at_query, at_key = self._rows(first, query.shape[2]), self._rows(0, key.shape[2])
        return self.rotated(query, at_query), self.rotated(key, at_key), None

    def rotation(self, position: int) -> Float[Tensor, "2 pair"]:
        """Return cosines and sines of the angles at a position, in float64."""
        return self._rows(position, 1)[:, 0]

    def rotated(
        self, x: Float[Tensor, "batch heads time size"], rotations: Float[Tensor, "2 time pair"]
    ) -> Float[Tensor, "batch heads time size"]:
        """Return vectors rotated by angles, given their cosines and sines."""
        if x.shape[-1] != self.size:
            raise ValueError(f"the heads have size {x.shape[-1]}; expected {self.size}")
        axis = -1 if self.layout == "interleaved" else -2
        pairs = (self.size // 2, 2) if axis == -1 else (2, self.size // 2)
        a, b = x.reshape(*x.shape[:-1], *pairs).unbind(axis)
        precision = torch.promote_types(x.dtype, torch.float32)
        cos, sin = rotations.to(x.device, precision).unbind(0)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=axis).flatten(-2).to(x.dtype)

    def _rows(self, first: int, count: int) -> Tensor:
        if first + count <= _NUM_CACHED_POSITIONS:
            return self.table[:, first : first + count]
        return _rotations(first, count, self.size, self.base, self.table.device)


def _rotations(first: int, count: int, size: int, base: float, device: Device) -> Float[Tensor, "2 count pair"]:
    """Return cosines and sines of the angles at positions ``first`` to ``first + count - 1``, in float64."""
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=device) / size
    angles = torch.arange(first, first + count, dtype=torch.float64, device=device)[:, None] * base**-exponents
    return torch.stack([torch.cos(angles), torch.sin(angles)])
