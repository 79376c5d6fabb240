"""Independent reference implementations: grammars copied from their description, naive algorithms, exact fractions."""

from fractions import Fraction
from functools import cache
from itertools import product

import pytest

F = Fraction
NAMES = ("marked-reversal", "unmarked-reversal", "padded-reversal", "dyck", "hardest-cfl")


def _hardest():
    brackets = [(f"{left} {inner} {right}", weight) for left, right in ("()", "[]")
                for inner, weight in (("Q S Q", F(3, 8)), ("Q", F(1, 8)))]  # fmt: skip
    return {
        "S'": [("R $ Q S L ;", F(1))],
        "L": [("L' , U", F(1))],
        "L'": [(", V L'", F(1, 3)), ("", F(2, 3))],
        "R": [("U , R'", F(1))],
        "R'": [("R' V ,", F(1, 3)), ("", F(2, 3))],
        "U": [("W U", F(1, 3)), ("", F(2, 3))],
        "V": [("W V", F(1, 2)), ("W", F(1, 2))],
        "W": [(terminal, F(1, 5)) for terminal in "()[]$"],
        "Q": [("L ; R", F(1, 4)), ("", F(3, 4))],
        "S": [("S Q T", F(3, 5)), ("T", F(2, 5))],
        "T": brackets,
    }


RULES = {
    "marked-reversal": {"S": [("0 S 0", F(30, 61)), ("1 S 1", F(30, 61)), ("#", F(1, 61))]},
    "unmarked-reversal": {"S": [("0 S 0", F(30, 61)), ("1 S 1", F(30, 61)), ("", F(1, 61))]},
    "padded-reversal": {
        "S": [("0 S 0", F(30, 61)), ("1 S 1", F(30, 61)), ("T0", F(1, 122)), ("T1", F(1, 122))],
        "T0": [("0 T0", F(30, 31)), ("", F(1, 31))],
        "T1": [("1 T1", F(30, 31)), ("", F(1, 31))],
    },
    "dyck": {
        "S": [("S T", F(1, 2)), ("T", F(1, 2))],
        "T": [("( S )", F(39, 80)), ("[ S ]", F(39, 80)), ("( )", F(1, 80)), ("[ ]", F(1, 80))],
    },
    "hardest-cfl": _hardest(),
}


class Oracle:
    """A grammar {left: {right: weight}} whose first left-hand side is the start."""

    def __init__(self, rules):
        self.rules = rules
        self.start = next(iter(rules))
        self.least = self._least_lengths()
        self.strings = cache(self._strings)

    @classmethod
    def faithful(cls, name):
        return cls(
            {left: {tuple(right.split()): weight for right, weight in rights} for left, rights in RULES[name].items()}
        )

    @classmethod
    def reference(cls, name):
        """Rules removed one by one, as in the description: first empty rules, then unary rules."""
        rules = cls.faithful(name).rules
        nonterminals = frozenset(rules)
        for wanted in (lambda right: right == (), lambda right: len(right) == 1 and right[0] in nonterminals):
            while found := [(left, right) for left, rights in rules.items() for right in rights if wanted(right)]:
                rules = removed(rules, *found[0])
        return cls(rules)

    def _least_lengths(self):
        least = dict.fromkeys(self.rules, 1000)
        for _ in self.rules:
            for left, rights in self.rules.items():
                least[left] = min(sum(least.get(symbol, 1) for symbol in right) for right in rights)
        return least

    def least_of(self, symbols):
        return sum(self.least.get(symbol, 1) for symbol in symbols)

    def all_strings(self, length):
        """{string: probability} of all strings of a length, by enumeration."""
        return self.strings((self.start,), length)

    def _strings(self, symbols, length):
        if not symbols:
            return {"": F(1)} if length == 0 else {}
        found = {}
        rest = symbols[1:]
        for size in range(self.least_of(symbols[:1]), length - self.least_of(rest) + 1):
            tails = self.strings(rest, length - size)
            for head, p in (self._of_one(symbols[0], size) if tails else {}).items():
                for tail, q in tails.items():
                    found[head + tail] = found.get(head + tail, F(0)) + p * q
        return found

    def _of_one(self, symbol, size):
        if symbol not in self.rules:
            return {symbol: F(1)} if size == 1 else {}
        found = {}
        for right, weight in self.rules[symbol].items():
            for string, p in self.strings(right, size).items():
                found[string] = found.get(string, F(0)) + weight * p
        return found

    def probability(self, string):
        """P(string), by recursion over right-hand sides and spans."""

        @cache
        def of(symbols, start, end):
            if not symbols:
                return F(int(start == end))
            if end - start < self.least_of(symbols):
                return F(0)
            first, rest = symbols[0], symbols[1:]
            if first not in self.rules:
                return of(rest, start + 1, end) if string[start] == first else F(0)
            if not rest:
                return sum((weight * of(right, start, end) for right, weight in self.rules[first].items()), F(0))
            cuts = range(start + self.least[first], end - self.least_of(rest) + 1)
            return sum((p * of((first,), start, cut) for cut in cuts if (p := of(rest, cut, end))), F(0))

        return of((self.start,), 0, len(string))


def removed(rules, removed_left, removed_right):
    """Remove one rule as in the description."""
    p = rules[removed_left][removed_right]
    result = {}
    for left, rights in rules.items():
        result[left] = {}
        for right, weight in rights.items():
            if (left, right) == (removed_left, removed_right):
                continue
            own = weight / (1 - p) if left == removed_left else weight
            ways = [[((symbol,), 1 - p), (removed_right, p)] if symbol == removed_left else [((symbol,), F(1))]
                    for symbol in right]  # fmt: skip
            for chosen in product(*ways):
                new = tuple(symbol for part, _ in chosen for symbol in part)
                factor = own
                for _, share in chosen:
                    factor *= share
                result[left][new] = result[left].get(new, F(0)) + factor
    return result


@cache
def oracle(name, variant):
    return Oracle.faithful(name) if variant == "faithful" else Oracle.reference(name)


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture(params=("faithful", "reference"))
def variant(request):
    return request.param


@pytest.fixture
def judge(name, variant):
    return oracle(name, variant)


@pytest.fixture(scope="session")
def judge_of():
    """(name, variant) -> the reference implementation, for tests that choose both."""
    return oracle
