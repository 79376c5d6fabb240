"""BLiMP: is an acceptable sentence more likely than one that differs minimally and is not (Warstadt et al. 2020)?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.support.grouping import grouped
from structattn.support.progress import progress, track
from structattn.tasks.language_modeling.sentences import SentenceScorer, Span
from structattn.tasks.minimal_pairs.data import BLIMP, MinimalPair
from structattn.tasks.suite_analyses import write_suite_analysis

Outcomes = Mapping[int, bool]
"""Index of a pair -> whether the acceptable member is strictly more likely; only of the pairs that are compared."""


@dataclass(frozen=True)
class MinimalPairAccuracy:
    """How often the acceptable sentence is strictly more likely; a tie counts as wrong.

    Args:
        sentence: log p of whole sentences compared, without normalization by length.
        known: the same, of the pairs without ``<unk>``; None if there is none.
        one_prefix: p(acceptable word | prefix) > p(unacceptable word | prefix), where the paradigms define both words.
        two_prefix: p(word | acceptable prefix) > p(word | unacceptable prefix), where they define both prefixes.
    """

    sentence: Proportion
    known: Proportion | None
    one_prefix: Proportion | None
    two_prefix: Proportion | None


@dataclass(frozen=True)
class BlimpScores:
    """Accuracy on the pairs of each paradigm, phenomenon and field, and on all.

    Intervals take the paradigms as given and the pairs as independent trials.

    Args:
        name: of the suite, see ``suite_name``.
        overall: of all pairs, which is the mean over the paradigms where these have equally many pairs, as in BLiMP.
    """

    name: str
    overall: MinimalPairAccuracy
    fields: dict[str, MinimalPairAccuracy]
    phenomena: dict[str, MinimalPairAccuracy]
    paradigms: dict[str, MinimalPairAccuracy]
    phenomenon_of: dict[str, str]


def blimp_scores(scorer: SentenceScorer, pairs: Sequence[MinimalPair], name: str = BLIMP) -> BlimpScores:
    """Score minimal pairs.

    Raises:
        DataError: a sentence cannot be encoded, or is too long for the model; the message names its line.
    """
    outcomes = _outcomes(scorer, pairs)

    def accuracy(members: Sequence[int]) -> MinimalPairAccuracy:
        parts = (_proportion(outcomes[name], members) for name in ("known", "one_prefix", "two_prefix"))
        return MinimalPairAccuracy(wilson_interval([outcomes["sentence"][n] for n in members]), *parts)

    def accuracies(name: Callable[[MinimalPair], str]) -> dict[str, MinimalPairAccuracy]:
        groups = grouped(range(len(pairs)), lambda number: name(pairs[number]))
        return {key: accuracy(groups[key]) for key in sorted(groups)}

    return BlimpScores(
        name=name,
        overall=accuracy(range(len(pairs))),
        fields=accuracies(lambda pair: pair.field),
        phenomena=accuracies(lambda pair: pair.phenomenon),
        paradigms=accuracies(lambda pair: pair.paradigm),
        phenomenon_of={pair.paradigm: pair.phenomenon for pair in pairs},
    )


def write_blimp(scorer: SentenceScorer, pairs: Sequence[MinimalPair], scores: BlimpScores) -> Path:
    """Write the scores to ``analyses/blimp.json`` in the run folder, those of other pairs to ``blimp-NAME.json``."""
    name = "blimp" if scores.name == BLIMP else f"blimp-{scores.name}"
    content = {"scoring": scorer.description(), **asdict(scores)}
    return write_suite_analysis(scorer.run, name, "blimp", content, (pair.path for pair in pairs))


class _Comparison(NamedTuple):
    """Two spans of a pair to compare, the acceptable one first; ``method`` is a field of ``MinimalPairAccuracy``."""

    method: str
    pair: int
    spans: tuple[Span, Span]


def _outcomes(scorer: SentenceScorer, pairs: Sequence[MinimalPair]) -> Mapping[str, Outcomes]:
    """Return the outcomes of each method: field of ``MinimalPairAccuracy`` -> outcomes."""
    with progress("Encoding pairs", len(pairs), "pairs") as advance:
        comparisons = [each for n, pair in enumerate(track(pairs, advance)) for each in _comparisons(scorer, pair, n)]
    spans = [span for each in comparisons for span in each.spans]
    scores = scorer.log_probabilities(spans, "minimal pairs").reshape(-1, 2)
    outcomes: dict[str, dict[int, bool]] = {field.name: {} for field in fields(MinimalPairAccuracy)}
    for each, right in zip(comparisons, (scores[:, 0] > scores[:, 1]).tolist(), strict=True):
        outcomes[each.method][each.pair] = right
    return outcomes


def _comparisons(scorer: SentenceScorer, pair: MinimalPair, number: int) -> Iterator[_Comparison]:
    good, bad = (scorer.encode(text, pair.path, pair.line) for text in (pair.good, pair.bad))
    whole = scorer.sentence(good), scorer.sentence(bad)
    yield _Comparison("sentence", number, whole)
    if not (scorer.has_unknown(good) or scorer.has_unknown(bad)):
        yield _Comparison("known", number, whole)
    for method, (prefixes, words) in pair.continuations.items():
        spans = [_continuation(scorer, pair, *each) for each in zip(prefixes, words, (good, bad), strict=True)]
        yield _Comparison(method, number, (spans[0], spans[1]))


def _continuation(scorer: SentenceScorer, pair: MinimalPair, prefix: str, word: str, sentence: tuple[int, ...]) -> Span:
    """Return the span of a word after a prefix, within the sentence if that begins with them: it is scored anyway."""
    start, whole = (scorer.encode(text, pair.path, pair.line) for text in (prefix, f"{prefix} {word}"))
    return Span(sentence if sentence[: len(whole)] == whole else whole, len(start), len(whole))


def _proportion(outcomes: Outcomes, members: Sequence[int]) -> Proportion | None:
    """Return the proportion among the members that are compared; None if there is none."""
    compared = [outcomes[number] for number in members if number in outcomes]
    return wilson_interval(compared) if compared else None
