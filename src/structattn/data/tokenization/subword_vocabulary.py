"""Which pieces get a number, and which of them may come out on which side."""

from collections import Counter
from collections.abc import Iterable, Mapping

from structattn.data.tokenization.subword_tokenizer import Subwords, SubwordTokenizer
from structattn.data.tokenization.vocabulary import CONTROL_SYMBOLS, UNKNOWN_SYMBOL, Vocabulary

_RESERVED = {*CONTROL_SYMBOLS, UNKNOWN_SYMBOL}


def numbered(subwords: Subwords, sides: Iterable[Mapping[str, int]], threshold: int = 0) -> list[SubwordTokenizer]:
    """One tokenizer for each side, all with one numbering.

    Without a threshold every piece that was learnt is numbered, and every character. With one, a piece that occurs
    less often on a side does not come out there: its merge is undone (``--vocabulary-threshold`` of subword-nmt), and
    so on; pieces that come out nowhere get no number. Single characters always may come out.

    Pieces are numbered by falling count, equal counts by code point, after ``<unk>``. A piece that would be spelt like
    a special symbol is never kept.

    Args:
        subwords: what was learnt.
        sides: for each side, how often each of ``subwords.units`` occurs in its training text.
        threshold: the least count of a piece on a side; 0 or 1: all that were learnt.
    """
    counted = [piece_counts(subwords, units) for units in sides]
    characters = {character for counts in counted for piece in counts for character in piece}
    learnt = {*subwords.products, *characters, *(piece for counts in counted for piece in counts)} - _RESERVED
    total = sum(counted, Counter[str]())  # what was seen 0 times has no count here, and comes last
    kept = [learnt if threshold <= 1 else _common(counts, threshold) | characters for counts in counted]
    ranked = sorted(set().union(*kept), key=lambda piece: (-total[piece], piece))
    vocabulary = Vocabulary.of(ranked, unknown=True)
    return [SubwordTokenizer(subwords.restricted(pieces), vocabulary) for pieces in kept]


def piece_counts(subwords: Subwords, units: Mapping[str, int]) -> Counter[str]:
    """How often each piece occurs in a text of which the units are counted."""
    counts: Counter[str] = Counter()
    for unit, count in units.items():
        for piece in subwords.segment(unit):
            counts[piece] += count
    return counts


def _common(counts: Mapping[str, int], threshold: int) -> set[str]:
    return {piece for piece, count in counts.items() if count >= threshold} - _RESERVED
