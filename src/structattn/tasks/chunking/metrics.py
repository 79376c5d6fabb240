"""Chunks of B-/I-/O tags, and the accuracy, precision, recall and F1 of predicted tags as conlleval defines them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from structattn.metrics.bracketing import precision_recall_f1

OUTSIDE = "O"

Tags = Sequence[str]


@dataclass(frozen=True, order=True)
class Chunk:
    """The words ``start`` to ``end`` - 1 of a sentence, and the type of the phrase."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class ChunkScores:
    """Scores of predicted chunks; a chunk is correct if its first word, its last word and its type are.

    Args:
        precision: correct / predicted; 0 where nothing was predicted.
        recall: correct / gold; 0 where there are no true chunks.
        f1: their harmonic mean; 0 where both are 0.
    """

    correct: int
    predicted: int
    gold: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class TaggingScores:
    """Scores of predicted tags.

    Args:
        accuracy: the fraction of words whose tag is right, its prefix included.
        overall: of the chunks of all types.
        types: type of phrase -> scores, by type in alphabetical order.
    """

    words: int
    accuracy: float
    overall: ChunkScores
    types: dict[str, ChunkScores]


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into its prefix (B, I or O) and the type of the phrase ("" for O).

    Raises:
        ValueError: it is not O, B-TYPE or I-TYPE.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, _, kind = tag.partition("-")
    if prefix not in ("B", "I") or not kind:
        raise ValueError(f"{tag!r} is not a chunk tag; expected O, B-TYPE or I-TYPE")
    return prefix, kind


def chunks_of(tags: Tags) -> list[Chunk]:
    """Return the chunks of a sentence from left to right.

    A chunk begins at B, and at an I that does not continue a chunk of its type; it ends before the next tag that is not
    I of its type. Any sequence of tags has chunks, so a model may predict I first.

    Raises:
        ValueError: a tag is not O, B-TYPE or I-TYPE.
    """
    return list(_chunks(tags))


def _chunks(tags: Tags) -> Iterator[Chunk]:
    start, current = 0, ""
    for position, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        if prefix == "I" and kind == current:
            continue
        if current:
            yield Chunk(start, position, current)
        start, current = position, kind


def tagging_scores(gold: Sequence[Tags], predicted: Sequence[Tags]) -> TaggingScores:
    """Compute the scores of conlleval: counts of words and chunks over all sentences.

    Raises:
        ValueError: the numbers of sentences, or of tags in a sentence, differ; a tag is malformed; or there are no
            words.
    """
    words, right, counts = 0, 0, {name: Counter[str]() for name in ("correct", "predicted", "gold")}
    for truth, guess in zip(gold, predicted, strict=True):
        right += sum(a == b for a, b in zip(truth, guess, strict=True))
        words += len(truth)
        wanted, guessed = set(chunks_of(truth)), set(chunks_of(guess))
        for name, chunks in (("correct", wanted & guessed), ("predicted", guessed), ("gold", wanted)):
            counts[name].update(chunk.type for chunk in chunks)
    if not words:
        raise ValueError("no words; expected at least one")
    types = sorted(set().union(*counts.values()))
    of_types = {kind: _scores(*(counts[name][kind] for name in counts)) for kind in types}
    return TaggingScores(words, right / words, _scores(*(each.total() for each in counts.values())), of_types)


def _scores(correct: int, predicted: int, gold: int) -> ChunkScores:
    return ChunkScores(correct, predicted, gold, *precision_recall_f1(correct, predicted, gold))
