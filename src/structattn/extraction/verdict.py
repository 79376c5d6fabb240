"""The conclusion of an extraction."""

from dataclasses import dataclass
from typing import Literal

from structattn.extraction.comparison import Comparison, String
from structattn.extraction.reading import MAX_OF_LETTERS, MAX_OF_TRANSITIONS, CausalCheck
from structattn.extraction.threshold import Threshold
from structattn.report.page import visible

Kind = Literal["exact", "other language", "no automaton agrees"]


MIN_OF_DISABLED = 0.02
"""Nats per token that a model loses with its stack disabled, if it needs it."""


MIN_AGREEMENT = 0.98
"""Of extracted grammar and model, after the prefixes of validation strings."""


MIN_SIDES = 0.5
"""Of what just one of extracted and true grammar allows, the share on which the model sides with the extracted one."""


@dataclass(frozen=True)
class Verdict:
    """The conclusion.

    Args:
        kind: "exact": the automaton agrees with the model, and with the true language on all strings up to a length;
            "other language": it agrees with the model, and differs from the true language, or that is unknown;
            "no automaton agrees".
        reasons: why no automaton agrees, else what differs or how far it is exact; a remark where
            the model does not need the stack.
    """

    kind: Kind
    reasons: tuple[str, ...]


def verdict_of(
    causal: CausalCheck,
    threshold: Threshold,
    agreement: float | None,
    comparison: Comparison | None,
    sides: float | None = None,
    absent: str = "the transitions accept no string with symbols",
) -> Verdict:
    """Return the verdict, with a remark where the model does not need the stack.

    Args:
        causal: of the model alone.
        threshold: between what can follow and what cannot.
        agreement: the share of validation prefixes after which model and extracted grammar allow the same symbols;
            None if there is no grammar.
        comparison: of the extracted with the true grammar; None if that is unknown, or there is no grammar.
        sides: where they differ, the share of cases in which the model sides with the extracted one.
        absent: why there is no grammar, if there is none.
    """
    if reasons := _reasons(causal, threshold, agreement, absent):
        verdict = Verdict("no automaton agrees", tuple(reasons))
    else:
        verdict = _of_agreeing(comparison, sides)
    if causal.disabled_difference >= MIN_OF_DISABLED:
        return verdict
    remark = f"the model does not need this stack: disabling it costs {causal.disabled_difference:+.4f} nats per token"
    return Verdict(verdict.kind, (*verdict.reasons, remark))


def _of_agreeing(comparison: Comparison | None, sides: float | None) -> Verdict:
    if comparison is None:
        return Verdict("other language", ("agrees with the model; the grammar of the data is unknown",))
    if comparison.is_equal:
        return Verdict("exact", (f"up to length {comparison.max_length}",))
    if sides is not None and sides < MIN_SIDES:
        with_language = f"the model sides with the language in {1 - sides:.0%} of what differs: {described(comparison)}"
        return Verdict("no automaton agrees", (with_language,))
    return Verdict("other language", (f"agrees with the model, not with the language: {described(comparison)}",))


def _reasons(causal: CausalCheck, threshold: Threshold, agreement: float | None, absent: str) -> list[str]:
    reasons = []
    if causal.letters_difference >= MAX_OF_LETTERS:
        reasons.append(f"not finite: mean weights of letters cost {causal.letters_difference:+.4f} nats per token")
    if causal.difference >= MAX_OF_TRANSITIONS:
        reasons.append(f"causal check: the transitions alone cost {causal.difference:+.4f} nats per token")
    if agreement is None:
        reasons.append(absent)
    elif agreement < MIN_AGREEMENT:
        gap = "" if threshold.has_gap else f"; no gap (factor {threshold.factor:.1f})"
        reasons.append(f"the model allows the same symbols after {agreement:.1%} of prefixes{gap}")
    return reasons


def described(comparison: Comparison) -> str:
    """Describe the shortest difference of an extracted (first) and a true grammar (second)."""
    if comparison.counterexample is not None:
        where = "only the automaton" if comparison.in_first else "only the language"
        return f"{where} has {_shown(comparison.counterexample) or 'the empty string'}"
    assert comparison.difference is not None
    return f"other symbols can follow {_shown(comparison.difference.prefix) or 'the empty prefix'}"


def _shown(string: String) -> str:
    return " ".join(visible(each, longest=1000) for each in string)
