"""How often model, extracted grammar and true grammar allow the same symbols."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from structattn.extraction.comparison import PrefixPair
from structattn.extraction.next_symbols import END, Reader, following
from structattn.extraction.stacks import Observation
from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.support.special_tokens import CLASS_OFFSET, EOS_CLASS

Symbols = Sequence[str]
_Row = tuple[frozenset[str], frozenset[str], frozenset[str] | None]  # model, extracted and true grammar


@dataclass(frozen=True)
class Agreement:
    """Shares of prefixes after which two of the three allow the same symbols, with 95 % intervals.

    Args:
        extracted_model: extracted grammar and model.
        extracted_truth: extracted and true grammar; None if that is unknown.
        model_truth: model and true grammar; None if that is unknown.
    """

    extracted_model: Proportion
    extracted_truth: Proportion | None
    model_truth: Proportion | None


@dataclass(frozen=True)
class Modelled:
    """What a model allows: the symbols of its classes whose log-probability is above a threshold."""

    symbols: Symbols
    log_threshold: float

    def allowed(self, log_probabilities: np.ndarray) -> frozenset[str]:
        """Return the symbols that can follow, ``END`` included."""
        above = np.flatnonzero(log_probabilities > self.log_threshold).tolist()
        return frozenset(END if index == EOS_CLASS else self.symbols[index + CLASS_OFFSET] for index in above)


def agreement_on_strings(
    observations: Sequence[Observation], modelled: Modelled, extracted: Reader, truth: Reader | None
) -> Agreement:
    """Compare at all prefixes of strings. A prefix of no string of a grammar has nothing that can follow."""
    rows: list[_Row] = []
    for each in observations:
        string = [modelled.symbols[index] for index in each.ids[1:].tolist()]
        of_extracted, of_truth = (
            _padded(following(side, string), len(string) + 1) if side else None for side in (extracted, truth)
        )
        assert of_extracted is not None
        for t, log_probabilities in enumerate(each.log_probabilities):
            rows.append((modelled.allowed(log_probabilities), of_extracted[t], of_truth[t] if of_truth else None))
    return _agreement(rows)


def agreement_on_prefixes(
    pairs: Sequence[PrefixPair], log_probabilities: Sequence[np.ndarray], modelled: Modelled
) -> Agreement:
    """Compare after prefixes of the extracted (first) or the true (second) grammar."""
    rows: list[_Row] = []
    for each, row in zip(pairs, log_probabilities, strict=True):
        first, second = (side or frozenset() for side in each.sides)
        rows.append((modelled.allowed(row), first, second))
    return _agreement(rows)


def _padded(found: list[frozenset[str]], count: int) -> list[frozenset[str]]:
    return found + [frozenset()] * (count - len(found))


def _agreement(rows: Sequence[_Row]) -> Agreement:
    known = bool(rows) and rows[0][2] is not None
    return Agreement(
        wilson_interval([model == extracted for model, extracted, _ in rows]),
        wilson_interval([extracted == truth for _, extracted, truth in rows]) if known else None,
        wilson_interval([model == truth for model, _, truth in rows]) if known else None,
    )


def forbidden_mass(observations: Sequence[Observation], modelled: Modelled, extracted: Reader) -> float:
    """Return the mean probability that a model gives to what the extracted grammar forbids, after all prefixes."""
    total, count = 0.0, 0
    for each in observations:
        string = [modelled.symbols[index] for index in each.ids[1:].tolist()]
        sides = _padded(following(extracted, string), len(string) + 1)
        names = [END, *modelled.symbols[EOS_CLASS + CLASS_OFFSET + 1 :]]
        for row, side in zip(np.exp(each.log_probabilities), sides, strict=True):
            total += float(sum(p for name, p in zip(names, row, strict=True) if name not in side))
            count += 1
    return total / count
