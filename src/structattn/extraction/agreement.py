"""How often model, extracted grammar and true grammar allow the same symbols."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from structattn.extraction.comparison import PrefixPair
from structattn.extraction.stacks import Observation
from structattn.extraction.threshold import best_threshold
from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.support.special_tokens import CLASS_OFFSET, EOS_CLASS
from structattn.tasks.formal_languages.next_symbols import END, Reader, following

Symbols = Sequence[str]
_Row = tuple[frozenset[str], frozenset[str], frozenset[str] | None]  # model, extracted and true grammar


@dataclass(frozen=True)
class Agreement:
    """Shares of prefixes after which two of the three allow the same symbols, with 95 % intervals.

    The intervals take prefixes as independent, which those of one string are not: they are too narrow.

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

    @property
    def classes(self) -> list[str]:
        """The names of the output classes: ``END`` and the symbols."""
        return [END, *self.symbols[EOS_CLASS + CLASS_OFFSET + 1 :]]

    def string(self, ids: np.ndarray) -> list[str]:
        """Return the symbols of ids, without that of ``<bos>``, which is the first."""
        return [self.symbols[index] for index in ids[1:].tolist()]


def agreement_on_strings(
    observations: Sequence[Observation], modelled: Modelled, extracted: Reader, truth: Reader | None
) -> Agreement:
    """Compare at all prefixes of strings. A prefix of no string of a grammar has nothing that can follow."""
    rows: list[_Row] = []
    for each in observations:
        of_extracted = _sides(each, modelled, extracted)
        of_truth = None if truth is None else _sides(each, modelled, truth)
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


def sides_with_extracted(
    pairs: Sequence[PrefixPair], log_probabilities: Sequence[np.ndarray], modelled: Modelled, min_length: int
) -> float | None:
    """Return the share of the symbols allowed by just one of two grammars on which a model sides with the first.

    ``pairs`` are of the extracted (first) and the true grammar; whether a string of fewer than ``min_length`` symbols
    can end is not judged. None if they differ nowhere.
    """
    found = list[bool]()
    for each, row in zip(pairs, log_probabilities, strict=True):
        first, second = (side or frozenset() for side in each.sides)
        judged = (first ^ second) - (frozenset([END]) if len(each.string) < min_length else frozenset())
        found += [(symbol in modelled.allowed(row)) == (symbol in first) for symbol in judged]
    return sum(found) / len(found) if found else None


def _agreement(rows: Sequence[_Row]) -> Agreement:
    known = bool(rows) and rows[0][2] is not None
    return Agreement(
        wilson_interval([model == extracted for model, extracted, _ in rows]),
        wilson_interval([extracted == truth for _, extracted, truth in rows]) if known else None,
        wilson_interval([model == truth for model, _, truth in rows]) if known else None,
    )


def fitted_threshold(observations: Sequence[Observation], modelled: Modelled, extracted: Reader) -> float:
    """Return the threshold at which model and extracted grammar allow the same symbols after most prefixes."""
    names = modelled.classes
    allowed, forbidden = list[float](), list[float]()
    for each in observations:
        for row, side in zip(np.exp(each.log_probabilities), _sides(each, modelled, extracted), strict=True):
            follows = np.array([name in side for name in names])
            allowed.append(row[follows].min(initial=1.0))
            forbidden.append(row[~follows].max(initial=0.0))
    return best_threshold(allowed, forbidden)


def _sides(each: Observation, modelled: Modelled, extracted: Reader) -> list[frozenset[str]]:
    """Return what can follow each prefix of a string."""
    string = modelled.string(each.ids)
    found = following(extracted, string)
    return found + [frozenset()] * (len(string) + 1 - len(found))


def forbidden_mass(observations: Sequence[Observation], modelled: Modelled, extracted: Reader) -> float:
    """Return the mean probability that a model gives to what the extracted grammar forbids, after all prefixes."""
    total, count = 0.0, 0
    names = modelled.classes
    for each in observations:
        for row, side in zip(np.exp(each.log_probabilities), _sides(each, modelled, extracted), strict=True):
            total += float(sum(p for name, p in zip(names, row, strict=True) if name not in side))
            count += 1
    return total / count
