"""Beam search settings, length penalties, and the presets of published systems.

Hypotheses of different lengths are compared by score = log p / divisor(length). The length is the number of tokens
after <bos>, forced prefix and <eos> included. Divisors never decrease with length, which bounds the score that an
unfinished hypothesis can still reach.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from structattn.support.shapes import Float, Int

Finishing = Literal["separate", "in_beam"]
Stopping = Literal["exact", "best_finished", "all_finished"]


@runtime_checkable
class LengthPenalty(Protocol):
    """A divisor of the log-probability for each length from 1 on."""

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Return positive divisors that never decrease with length."""
        ...


@dataclass(frozen=True)
class NoLengthPenalty:
    """score = log p, which favours short hypotheses."""

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Return 1."""
        return length.new_ones(()).expand_as(length)


@dataclass(frozen=True)
class PerTokenPenalty:
    """score = log p / length, the mean over tokens (DuSell & Chiang 2024, appendix G.4)."""

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Return the length."""
        return length


@dataclass(frozen=True)
class GNMTPenalty:
    """score = log p / ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14).

    Args:
        alpha: at least 0; 0.2 in Wu et al. (2016), 0.6 in Vaswani et al. (2017) and You et al. (2020), 0.3 for the
            parser of Vaswani et al.

    Raises:
        ValueError: ``alpha`` is negative or NaN.
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        _require_non_negative("alpha", self.alpha)

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Return ((5 + length) / 6)^alpha."""
        return ((5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class PowerPenalty:
    """score = log p / length^exponent (fairseq; Ott et al. 2019).

    Args:
        exponent: at least 0; ``lenpen`` in fairseq.

    Raises:
        ValueError: ``exponent`` is negative or NaN.
    """

    exponent: float = 1.0

    def __post_init__(self) -> None:
        _require_non_negative("exponent", self.exponent)

    def divisor(self, length: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Return length^exponent."""
        return length**self.exponent


def length_penalized(
    penalty: LengthPenalty, log_probs: Float[Tensor, "*batch"], length: Int[Tensor, "*#batch"] | int
) -> Float[Tensor, "*batch"]:
    """Return the scores log p / divisor(length); a length of 0 counts as 1."""
    lengths = torch.as_tensor(length, device=log_probs.device).expand_as(log_probs)
    return log_probs / penalty.divisor(lengths.clamp(min=1).to(log_probs.dtype))


@dataclass(frozen=True)
class BeamSearch:
    """Settings of a beam search: how hypotheses are pruned, finished and ranked.

    finishing: what happens to a finished hypothesis that is among the ``beam_size`` best:
      - "separate": it moves to a list of at most ``beam_size`` finished hypotheses, and ``beam_size`` unfinished ones
        continue.
      - "in_beam": it stays in the beam, which holds ``beam_size`` finished and unfinished hypotheses together, until
        better-scoring ones displace it.

    stopping: when the search for a sentence ends, unless its maximum length comes first or no hypothesis can continue:
      - "exact": when no unfinished hypothesis in the beam can still enter the n best. log p only decreases, so a score
        can at most become log p / divisor(maximum length). Continuing would not change the result. With penalties that
        divide by the length this happens late, and the later the greater the maximum length.
      - "best_finished": when the best hypothesis of the beam is finished.
      - "all_finished": when ``beam_size`` hypotheses are finished.

    Args:
        beam_size: the number of hypotheses that continue.
        length_penalty: gives the scores by which hypotheses are pruned and compared.
        finishing: see above.
        stopping: see above; "exact" considers the n best that are requested, or ``beam_size`` with ``final_penalty``.
        final_penalty: another length penalty, by which the remaining hypotheses are ranked at the end.
        min_length: the number of tokens before <eos>, at least, where the maximum length has room for them.
        force_eos: whether the last token that the maximum length permits must be <eos>, whatever its probability, so
            that hypotheses end, and compete with shorter ones, rather than being cut and ranked after them.

    Raises:
        ValueError: ``beam_size`` is less than 1, ``min_length`` is negative, or ``finishing`` or ``stopping`` is
            unknown.
    """

    beam_size: int = 4
    length_penalty: LengthPenalty = NoLengthPenalty()
    finishing: Finishing = "separate"
    stopping: Stopping = "exact"
    final_penalty: LengthPenalty | None = None
    min_length: int = 0
    force_eos: bool = False

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size={self.beam_size}; expected at least 1")
        if self.min_length < 0:
            raise ValueError(f"min_length={self.min_length}; expected at least 0")
        if self.finishing not in ("separate", "in_beam"):
            raise ValueError(f"finishing={self.finishing!r}; expected 'separate' or 'in_beam'")
        if self.stopping not in ("exact", "best_finished", "all_finished"):
            raise ValueError(f"stopping={self.stopping!r}; expected 'exact', 'best_finished' or 'all_finished'")

    @property
    def ranking_penalty(self) -> LengthPenalty:
        """The length penalty by which results are ranked."""
        return self.final_penalty or self.length_penalty


def dusell_chiang_2024(beam_size: int = 4) -> BeamSearch:
    """Return the settings of DuSell & Chiang (2024), appendix G.4, who allow at most 256 tokens."""
    return BeamSearch(beam_size, PerTokenPenalty(), finishing="in_beam", stopping="best_finished")


def you_2020(beam_size: int = 4, alpha: float = 0.6) -> BeamSearch:
    """Return the settings of You et al. (2020), who allow at most 50 tokens more than the source has.

    As in their code, the length penalty is used for pruning, and the final choice is the most probable of the
    remaining finished hypotheses.
    """
    return BeamSearch(beam_size, GNMTPenalty(alpha), finishing="in_beam", final_penalty=NoLengthPenalty())


def gnmt(beam_size: int = 4, alpha: float = 0.2) -> BeamSearch:
    """Return a search with the length penalty of GNMT (Wu et al. 2016, section 7), without its coverage penalty."""
    return BeamSearch(beam_size, GNMTPenalty(alpha))


def vaswani_2017(beam_size: int = 4, alpha: float = 0.6) -> BeamSearch:
    """Return the settings of Vaswani et al. (2017, section 6.1), who allow 50 tokens more than the source has."""
    return BeamSearch(beam_size, GNMTPenalty(alpha))


def fairseq(beam_size: int = 5, exponent: float = 1.0) -> BeamSearch:
    """Return the settings of fairseq (Ott et al. 2019), used for the Discrete Transformer's translations.

    As there, no text is empty (``min_len`` of 1), and the last token at the maximum length is <eos>.
    """
    penalty = PowerPenalty(exponent)
    return BeamSearch(beam_size, penalty, stopping="all_finished", min_length=1, force_eos=True)


def _require_non_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name}={value}; expected at least 0: divisors must not decrease with length")
