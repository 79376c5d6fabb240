"""Ways to search with a beam, and the ones that papers use."""

from dataclasses import dataclass
from typing import Literal

from structattn.decoding.length_rules import Gnmt, LengthPower, LengthRule, PerToken, Unnormalized

Ended = Literal["apart", "compete"]
Stop = Literal["exact", "best", "count"]


@dataclass(frozen=True)
class BeamSearch:
    """How a beam search prunes, ends and ranks.

    finished: what becomes of hypotheses that end while they are among the ``beam`` best:
      - "apart": they are set aside, ``beam`` of them at most, and ``beam`` unfinished ones go on beside them.
      - "compete": they stay in the beam, which holds ``beam`` in all, until others of better score push them out.

    stop: when a sentence is done, unless its limit comes first or nothing is left to go on:
      - "exact": no unfinished hypothesis in the beam can still come among the n best: log p only falls, so its score
        can at most become log p / divisor(limit). Going on would not change the result. Where a rule divides by the
        length, that comes late, and the less so the greater the limit.
      - "best": the best of the beam is finished.
      - "count": ``beam`` hypotheses are finished.

    Args:
        beam: how many hypotheses go on.
        rule: scores by which hypotheses are pruned and compared.
        finished: see above.
        stop: see above; "exact" looks at the n best that are asked for, or at ``beam`` where ``ranking`` is given.
        ranking: another rule, by which the hypotheses that remain in the end are ranked.

    Raises:
        ValueError: a beam without a place, or an unknown name.
    """

    beam: int = 4
    rule: LengthRule = Unnormalized()  # noqa: RUF009 - frozen, and without anything inside
    finished: Ended = "apart"
    stop: Stop = "exact"
    ranking: LengthRule | None = None

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam={self.beam}; expected at least 1")
        if self.finished not in ("apart", "compete"):
            raise ValueError(f"finished={self.finished!r}; expected 'apart' or 'compete'")
        if self.stop not in ("exact", "best", "count"):
            raise ValueError(f"stop={self.stop!r}; expected 'exact', 'best' or 'count'")


def dusell_chiang_2024(beam: int = 4) -> BeamSearch:
    """That of DuSell & Chiang (2024), appendix G.4, with at most 256 tokens."""
    return BeamSearch(beam, PerToken(), finished="compete", stop="best")


def you_2020(beam: int = 4, alpha: float = 0.6) -> BeamSearch:
    """That of You et al. (2020), with at most 50 tokens more than the source has.

    As in its code, the rule prunes, and the winner is the likeliest of the finished hypotheses that remain.
    """
    return BeamSearch(beam, Gnmt(alpha), finished="compete", ranking=Unnormalized())


def fairseq(beam: int = 5, exponent: float = 1.0) -> BeamSearch:
    """That of fairseq (Ott et al. 2019), which the Discrete Transformer's translators used."""
    return BeamSearch(beam, LengthPower(exponent), stop="count")
