"""Parameters and centres of the Gaussian heads of one attention layer."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from structattn.support.shapes import Float, Int

Kernel = Literal["full", "window", "index"]


@dataclass(frozen=True)
class Gaussians:
    """Heads that differ in their offsets only; see ``gaussian_attention`` for the arguments.

    Raises:
        ValueError: a value is out of range or unknown.
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

    def radius(self, dtype: torch.dtype) -> int:
        """Return the largest distance from round(f(i)) at which a key may have a weight other than zero.

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
        """Return how many values, its own and earlier ones, a position of causal self-attention may use (ratio 1)."""
        return max(0, 1 + self.radius(dtype) - math.floor(min(self.offsets, default=0) + 0.5))

    def centres(
        self, first: int, queries: int, device: torch.device
    ) -> tuple[Int[Tensor, "1 queries"], Float[Tensor, "heads queries"]]:
        """Return f(i) = ratio * i + offset of the queries i = first, first + 1, ..., as a sum of two parts.

        The first part is floor(ratio * i), an integer, so that a distance j - f(i) keeps its digits for large
        positions, and with ratio 1 depends on i - j only. With ``floor`` the second part
        is rounded down, and f(i) with it.
        """
        query = torch.arange(first, first + queries, dtype=torch.float64, device=device)[None]
        whole = torch.floor(self.ratio * query)
        rest = self.ratio * query - whole + torch.tensor(self.offsets, dtype=torch.float64, device=device)[:, None]
        return whole.long(), torch.floor(rest) if self.floor else rest
