"""How hypotheses of different lengths are compared: score = log p / divisor(length).

A length is the number of tokens after <bos>, a forced prefix and <eos> counted. Divisors do not fall as lengths grow,
which is what bounds the score that an unfinished hypothesis can still reach.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class LengthRule(Protocol):
    """A divisor for each length from 1 on."""

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Positive, and never smaller for a greater length."""
        ...


@dataclass(frozen=True)
class Unnormalized:
    """score = log p, which favours short hypotheses."""

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """1."""
        return length.new_ones(()).expand_as(length)


@dataclass(frozen=True)
class PerToken:
    """score = log p / length, the mean over tokens (DuSell & Chiang 2024, appendix G.4)."""

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The length itself."""
        return length


@dataclass(frozen=True)
class Gnmt:
    """score = log p / ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14).

    Args:
        alpha: 0.6 in Vaswani et al. (2017) and You et al. (2020), 0.3 for the former's parser.
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        _require_not_negative("alpha", self.alpha)

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """((5 + length) / 6)^alpha."""
        return ((5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class LengthPower:
    """score = log p / length^exponent (fairseq; Ott et al. 2019).

    Args:
        exponent: its ``lenpen``.
    """

    exponent: float = 1.0

    def __post_init__(self) -> None:
        _require_not_negative("exponent", self.exponent)

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """length^exponent."""
        return length**self.exponent


def score(
    rule: LengthRule, log_probability: Float[Tensor, "*batch"], length: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The score: log p / divisor(length); a length of 0 counts as 1."""
    return log_probability / rule.divisor(length.clamp(min=1).to(log_probability.dtype))


def _require_not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name}={value}; expected at least 0: divisors must not fall as lengths grow")
