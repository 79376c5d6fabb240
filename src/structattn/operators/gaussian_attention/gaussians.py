"""What the hard-coded heads of one attention have in common, and where their centres lie."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

Kernel = Literal["full", "window", "index"]


@dataclass(frozen=True)
class Gaussians:
    """The heads, which differ in their offsets only; see ``gaussian_attention`` for the arguments.

    Raises:
        ValueError: a number is out of its range, or a word unknown.
    """

    offsets: tuple[float, ...]
    ratio: float = 1.0
    floor: bool = False
    sigma: float = 1.0
    kernel: Kernel = "full"
    window: int = 3
    causal: bool = False
    normalize: bool = False

    def __post_init__(self) -> None:
        if not all(math.isfinite(offset) for offset in self.offsets):
            raise ValueError(f"offsets={self.offsets}; expected finite numbers")
        if not 0 <= self.ratio < math.inf:
            raise ValueError(f"ratio={self.ratio}; expected 0 <= ratio < inf")
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma={self.sigma}; expected 0 < sigma < inf")
        if self.kernel not in get_args(Kernel):
            raise ValueError(f"kernel={self.kernel!r}; expected one of {get_args(Kernel)}")
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError(f"window={self.window}; expected an odd number of positions")

    def reach(self, dtype: torch.dtype) -> int:
        """How far from the middle of its band, round(f(i)), a query of such a head may see a key.

        Weights below the smallest normal number of ``dtype`` count as zero: for the full form with sigma = 1, those
        beyond 13 positions in float32 and 38 in float64. Normalised weights are relative to that of the nearest key,
        which is at most half a position away; where it is farther, at an end of the sequence, others fall off faster.
        """
        if self.kernel != "full":
            return self.window // 2 if self.kernel == "window" else 0
        if self.normalize:
            farthest = math.sqrt(0.25 + 2 * self.sigma**2 * -math.log(torch.finfo(dtype).tiny))
            return math.floor(min(farthest + 0.5, 2.0**52))
        most = -math.log(torch.finfo(dtype).tiny) + max(0.0, -math.log(self.sigma * math.sqrt(2 * math.pi)))
        return math.floor(min(self.sigma * math.sqrt(2 * most) + 0.5, 2.0**52))

    def values_needed(self, dtype: torch.dtype) -> int:
        """How many values, its own and those before it, a position of causal self-attention may read (ratio 1)."""
        return max(0, 1 + self.reach(dtype) - math.floor(min(self.offsets, default=0) + 0.5))

    def centres(
        self, first: int, queries: int, device: torch.device
    ) -> tuple[Int[Tensor, "1 queries"], Float[Tensor, "heads queries"]]:
        """f(i) = ratio * i + offset of the queries i = first, first + 1, ..., in two parts whose sum it is.

        The first part is floor(ratio * i), in integers. So a distance j - f(i) is found without losing digits where
        positions are large, and with ratio 1 it does not depend on where i and j stand. With ``floor`` the second part
        is rounded down, and f(i) with it.
        """
        query = torch.arange(first, first + queries, dtype=torch.float64, device=device)[None]
        whole = torch.floor(self.ratio * query)
        rest = self.ratio * query - whole + torch.tensor(self.offsets, dtype=torch.float64, device=device)[:, None]
        return whole.long(), torch.floor(rest) if self.floor else rest
