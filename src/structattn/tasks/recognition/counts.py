"""The rule of counts: the linear equations that the numbers of symbols satisfy in all members."""

from collections.abc import Iterable, Sequence

from structattn.tasks.recognition.language import String

Row = list[int]


class Counts:
    """Accepts strings whose counts satisfy each linear equation, exact or modulo a number, that holds for some members.

    Counted is each symbol at odd and at even positions: two Parikh vectors. In ww^R it occurs as often at odd positions
    as at even ones, in w#w^R a letter occurs an even number of times, in Dyck languages a bracket opens as often at odd
    positions as it closes at even ones. The rule knows nothing else of the order, and needs no stack.

    Args:
        members: the strings; without any, none is accepted.
        num_symbols: the size of the alphabet.
    """

    def __init__(self, members: Iterable[String], num_symbols: int) -> None:
        self._num_symbols = num_symbols
        counts = sorted({self._of(member) for member in members})
        self._first = counts[:1]
        self._differences = Lattice(_minus(each, 1, first) for first in self._first for each in counts)

    def __call__(self, string: String) -> bool:
        """Return whether a string satisfies these equations."""
        counts = self._of(string)
        return any(_minus(counts, 1, first) in self._differences for first in self._first)

    def _of(self, string: String) -> tuple[int, ...]:
        counts = [0] * (2 * self._num_symbols)
        for position, symbol in enumerate(string):
            counts[2 * symbol + position % 2] += 1
        return tuple(counts)


class Lattice:
    """All sums of integer multiples of some vectors of one length.

    Cost: O(length²) for each vector, given or looked up.
    """

    def __init__(self, vectors: Iterable[Row] = ()) -> None:
        self._rows: dict[int, Row] = {}  # a basis in echelon form: column of the first entry that is not 0 -> row
        for vector in vectors:
            self._add(vector)

    def __contains__(self, vector: Row) -> bool:
        """Return whether a vector is such a sum."""
        for column, row in sorted(self._rows.items()):
            factor, remainder = divmod(vector[column], row[column])
            if remainder:
                return False
            if factor:
                vector = _minus(vector, factor, row)
        return not any(vector)

    def _add(self, vector: Row) -> None:
        for column in range(len(vector)):
            row = self._rows.get(column)
            if vector[column] and row is None:
                self._rows[column] = vector
                return
            if vector[column] and row is not None:
                self._rows[column], vector = _euclid(row, vector, column)


def _euclid(row: Row, other: Row, column: int) -> tuple[Row, Row]:
    """Return two rows that span what the given ones span, of which the second has 0 in a column."""
    while other[column]:
        row, other = other, _minus(row, row[column] // other[column], other)
    return row, other


def _minus(row: Sequence[int], factor: int, other: Sequence[int]) -> Row:
    return [left - factor * right for left, right in zip(row, other, strict=True)]
