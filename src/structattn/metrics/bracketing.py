"""Precision, recall and F1 of labelled brackets (Black et al. 1991), as evalb counts them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Bracket(NamedTuple):
    """A constituent: its label, and its words ``start`` to ``end`` - 1."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class BracketingScores:
    """Scores of predicted trees, over the brackets of all sentences.

    Args:
        correct: the number of predicted brackets that are right; equal brackets of a tree count separately.
        precision: correct / predicted; 0 where nothing was predicted.
        recall: correct / gold; 0 where there are no true brackets.
        f1: their harmonic mean; 0 where both are 0.
        exact: the fraction of sentences whose brackets are all right, and no more.
    """

    sentences: int
    correct: int
    predicted: int
    gold: int
    precision: float
    recall: float
    f1: float
    exact: float


def bracketing_scores(gold: Sequence[Sequence[Bracket]], predicted: Sequence[Sequence[Bracket]]) -> BracketingScores:
    """Compute the scores of all sentences.

    Raises:
        ValueError: the numbers of sentences differ, or there are none.
    """
    pairs = [(Counter(truth), Counter(guess)) for truth, guess in zip(gold, predicted, strict=True)]
    if not pairs:
        raise ValueError("no sentences; expected at least one")
    correct = sum((truth & guess).total() for truth, guess in pairs)
    guessed, wanted = sum(guess.total() for _, guess in pairs), sum(truth.total() for truth, _ in pairs)
    exact = sum(truth == guess for truth, guess in pairs) / len(pairs)
    return BracketingScores(len(pairs), correct, guessed, wanted, *precision_recall_f1(correct, guessed, wanted), exact)


def precision_recall_f1(correct: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Return precision, recall and their harmonic mean; 0 for 0 / 0."""
    precision, recall = (correct / count if count else 0.0 for count in (predicted, gold))
    return precision, recall, 2 * correct / (predicted + gold) if predicted + gold else 0.0


def unlabelled(brackets: Sequence[Bracket]) -> list[Bracket]:
    """Return the brackets without their labels; several of the same words count as one."""
    return [Bracket("", *span) for span in sorted({(each.start, each.end) for each in brackets})]
