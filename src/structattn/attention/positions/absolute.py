"""Positions that are added to embeddings: sinusoidal and learned."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.support.shapes import Float, Lengths
from structattn.support.sizes import require_positive


class ComputedTable(nn.Module):
    """A module with a buffer ``table`` that is not part of its state.

    A cast, or a move from the meta device, would lose it: it is then computed anew. Subclasses call ``keep_table`` at
    the end of their ``__init__``.
    """

    table: Tensor
    table_dtype: torch.dtype | None = None  # in which the table stays under casts; None: that of the module

    def computed_table(self, device: Device) -> Tensor:
        """Return the table, on a device; None: torch's default one."""
        raise NotImplementedError

    def keep_table(self, device: Device, dtype: torch.dtype | None) -> None:
        """Register the table; None: with torch's default device and dtype."""
        table = self.computed_table(device).to(self.table_dtype or dtype or torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> "ComputedTable":
        before = self.table
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]  # torch's
        after = self.table
        if (before.is_meta or after.dtype != before.dtype) and not after.is_meta:
            self.table = self.computed_table(after.device).to(self.table_dtype or after.dtype)
        return self


Layout = Literal["interleaved", "halves"]

_NUM_CACHED_POSITIONS = 1024


def sinusoidal_positions(
    first: int,
    count: int,
    d_model: int,
    layout: Layout = "interleaved",
    base: float = 10000.0,
    denominator: Literal["d", "d-2"] = "d",
    device: Device = None,
) -> Float[Tensor, "count d_model"]:
    """Return positions ``first`` to ``first + count - 1`` of Vaswani et al. (2017), section 3.5, in float32.

    P[t, 2i] = sin(t / base^(2i / d)), P[t, 2i + 1] = cos(t / base^(2i / d)), positions counted from 0; computed in
    float64. With layout "halves" all sines precede all cosines; if d is odd the last cosine is left out. Cost:
    O(count * d).
    """
    time = torch.arange(first, first + count, dtype=torch.float64, device=device)[:, None]
    slowest = d_model if denominator == "d" else max(d_model - 2, 1)
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64, device=device) * (-math.log(base) / slowest))
    axis = -1 if layout == "interleaved" else -2
    waves = torch.stack([torch.sin(time * frequency), torch.cos(time * frequency)], dim=axis)
    return waves.flatten(1)[:, :d_model].float()


def require_base(base: float) -> None:
    """Raise ValueError unless the base of frequencies is a positive number."""
    if not 0 < base < math.inf:
        raise ValueError(f"base={base}; expected 0 < base < inf")


class SinusoidalPositions(ComputedTable):
    """Sinusoidal positions. The first 1,024 are precomputed, later ones on demand.

    The defaults are those of Vaswani et al. (2017), section 3.5. Other variants: layout "halves" with denominator "d-2"
    (tensor2tensor); layout "halves" with base 256 and direction "backward" (the code of Li et al. 2024).

    Args:
        d_model: d.
        layout: sine and cosine of a frequency side by side ("interleaved"), or all sines first ("halves").
        base: the wavelengths range from 2 pi to about 2 pi times this.
        denominator: of the exponent 2i / d; with "d-2" the last wavelength is exactly 2 pi times ``base``.
        direction: "forward" numbers positions 0, 1, ..; "backward" numbers them L, L - 1, .., 1, where L is the length
            of the sequence, so that positions are known for whole sequences only.
        device, dtype: of the table; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        layout: Layout = "interleaved",
        base: float = 10000.0,
        denominator: Literal["d", "d-2"] = "d",
        direction: Literal["forward", "backward"] = "forward",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _require(layout=(layout, ("interleaved", "halves")), denominator=(denominator, ("d", "d-2")))
        _require(direction=(direction, ("forward", "backward")))
        require_base(base)
        require_positive(d_model=d_model)
        self.layout, self.base, self.denominator, self.direction = layout, base, denominator, direction
        self.d_model = d_model
        self.keep_table(device, dtype)

    def computed_table(self, device: Device) -> Tensor:
        """Return the first positions."""
        return self._computed(0, _NUM_CACHED_POSITIONS, device)

    def forward(
        self, first: int, count: int, total: int | None = None, lengths: Lengths = None
    ) -> Float[Tensor, "*#batch count d_model"]:
        """Return positions ``first`` to ``first + count - 1``, with the device and dtype of the module.

        Args:
            first: the first position, counted from 0 at the start of the sequence in either direction.
            count: the number of positions.
            total: L, needed for "backward" only; None: the sequence ends after these positions.
            lengths: L of each of several sequences, from ``first`` 0 on, at most ``count``; positions of "backward"
                are then (batch, count, d), and undefined past each length.

        Raises:
            ValueError: the direction is "backward", ``first`` is not 0 and ``total`` is None, as in incremental steps.
        """
        backward = self.direction == "backward"
        if backward and total is None and first > 0:
            raise ValueError(
                f"direction='backward' counts positions from the end: position {first} needs the total length, so a "
                "model with such positions cannot go step by step"
            )
        if backward and lengths is not None:
            numbers = lengths.to(self.table.device)[:, None] - torch.arange(count, device=self.table.device)
            return self._rows(0, count + 1)[numbers.clamp(0, count)]
        lowest = (count if total is None else total) - first - count + 1 if backward else first
        rows = self._rows(lowest, count)
        return rows.flip(0) if backward else rows

    def _rows(self, first: int, count: int) -> Tensor:
        if first + count <= _NUM_CACHED_POSITIONS:
            return self.table[first : first + count]
        return self._computed(first, count, self.table.device).to(self.table.dtype)

    def _computed(self, first: int, count: int, device: Device) -> Tensor:
        return sinusoidal_positions(first, count, self.d_model, self.layout, self.base, self.denominator, device)


def _require(**choices: tuple[str, tuple[str, ...]]) -> None:
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(f"{name}={value!r}; expected {' or '.join(map(repr, known))}")


class LearnedPositions(nn.Module):
    """A learned vector for each position, initialised from N(0, 0.02^2).

    Args:
        d_model: d.
        max_positions: the number of positions; longer sequences raise an error.
        device, dtype: of the table; None: torch's defaults.
    """

    def __init__(
        self, d_model: int, max_positions: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        require_positive(d_model=d_model, max_positions=max_positions)
        self.table = nn.Parameter(torch.empty(max_positions, d_model, device=device, dtype=dtype).normal_(std=0.02))

    @property
    def max_positions(self) -> int:
        """The number of positions."""
        return self.table.shape[0]

    def forward(self, first: int, count: int) -> Float[Tensor, "count d_model"]:
        """Return the vectors of positions ``first`` to ``first + count - 1``, counted from 0.

        Raises:
            ValueError: there are fewer positions.
        """
        if first + count > self.max_positions:
            raise ValueError(
                f"the sequence has {first + count} positions; the model has {self.max_positions} learned positions"
            )
        return self.table[first : first + count]
