"""The seven regular languages of FLaRe, as automata: their actions in each state fix how strings are drawn."""

from collections.abc import Hashable, Mapping
from itertools import product

from structattn.tasks.recognition.automata import Automaton
from structattn.tasks.recognition.language import FlareLanguage, Shape, String

MODULUS, MAX_DEPTH = 5, 3
BITS = ("0", "1")
_MOVES, _DIGITS = 3, 5  # cycle navigation: > < =, then the digits
PLUS, MINUS, TIMES, EQUALS, ZERO = range(5)  # modular arithmetic: the digits follow the operators

Table = Mapping[Hashable, Mapping[int, Hashable]]


def automaton(table: Table, accepting: set[Hashable]) -> Automaton:
    """Return an automaton whose states have names; the first one is the start."""
    number = {state: index for index, state in enumerate(table)}
    transitions = tuple({symbol: number[target] for symbol, target in each.items()} for each in table.values())
    return Automaton(transitions, frozenset(number[state] for state in accepting))


def even_pairs() -> Automaton:
    """Return the automaton of strings whose first symbol is the last; the state is (first, last)."""
    table: dict[Hashable, dict[int, Hashable]] = {"start": {0: (0, 0), 1: (1, 1)}}
    for first, last in product((0, 1), repeat=2):
        table[first, last] = {0: (first, 0), 1: (first, 1)}
    return automaton(table, {"start", (0, 0), (1, 1)})


def repeat_01() -> Automaton:
    """Return the automaton of (01)*."""
    return automaton({"start": {0: "middle"}, "middle": {1: "start"}}, {"start"})


def parity() -> Automaton:
    """Return the automaton of an odd number of ones."""
    return automaton({"even": {0: "even", 1: "odd"}, "odd": {0: "odd", 1: "even"}}, {"odd"})


def cycle_navigation() -> Automaton:
    """Return the automaton of moves on a cycle of five, followed by the position that they lead to."""
    table: dict[Hashable, dict[int, Hashable]] = {
        place: {0: (place + 1) % 5, 1: (place - 1) % 5, 2: place, _MOVES + place: "end"} for place in range(MODULUS)
    }
    return automaton(table | {"end": {}}, {"end"})


def modular_arithmetic() -> Automaton:
    """Return the automaton of expressions without precedence, read from left to right, with their value mod 5."""
    digits = range(MODULUS)
    table: dict[Hashable, dict[int, Hashable]] = {"start": {ZERO + digit: digit for digit in digits}}
    for value in digits:
        table[value] = {sign: (value, sign) for sign in (PLUS, MINUS, TIMES, EQUALS)}
    for value in digits:
        results = {PLUS: value.__add__, MINUS: value.__sub__, TIMES: value.__mul__}
        table |= {
            (value, sign): {ZERO + digit: result(digit) % MODULUS for digit in digits}
            for sign, result in results.items()
        }
        table[value, EQUALS] = {ZERO + value: "end"}
    return automaton(table | {"end": {}}, {"end"})


def dyck_2_3() -> Automaton:
    """Return the automaton of balanced strings of two kinds of brackets, at most three deep; the state is the stack."""
    table: dict[Hashable, dict[int, Hashable]] = {}
    pending: list[tuple[int, ...]] = [()]
    for stack in pending:
        opened = {2 * kind: (*stack, kind) for kind in (0, 1) if len(stack) < MAX_DEPTH}
        pending += opened.values()
        table[stack] = {**opened, **({2 * stack[-1] + 1: stack[:-1]} if stack else {})}
    return automaton(table, {()})


def first() -> Automaton:
    """Return the automaton of strings that begin with 1."""
    return automaton({"start": {1: "rest"}, "rest": {0: "rest", 1: "rest"}}, {"rest"})


def _repeats(string: String) -> bool:
    return len(string) % 2 == 0 and (not string or (string[0], string[-1]) == (0, 1))


def _moves_and_digit(string: String) -> bool:
    return bool(string) and max(string[:-1], default=0) < _MOVES <= string[-1]


def _expression(string: String) -> bool:
    digits, signs = string[::2], string[1::2]
    right = len(string) >= 3 and len(string) % 2 == 1 and min(digits) >= ZERO
    return right and signs[-1] == EQUALS and max(signs[:-1], default=PLUS) < EQUALS


def as_many_opens(string: String) -> bool:
    """Return whether as many brackets open as close; those that open have even indices."""
    return 2 * sum(symbol % 2 for symbol in string) == len(string)


def _language(
    name: str, description: str, symbols: str, own: Automaton, classes: tuple[int, ...], shape: Shape | None = None
) -> FlareLanguage:
    functions = own.has_length, own.sample, own.accepts, own.next_symbols
    return FlareLanguage(
        name, description, tuple(symbols.split()), *functions, classes, shape, log_conditional=own.log_conditional
    )


REGULAR = (
    _language("even-pairs", "the first symbol is the last", "0 1", even_pairs(), (0, 0)),
    _language("repeat-01", "01 repeated", "0 1", repeat_01(), (0, 0), _repeats),
    _language("parity", "an odd number of ones", "0 1", parity(), (0, 0)),
    _language(
        "cycle-navigation",
        "moves on a cycle of five, and where they end",
        "> < = 0 1 2 3 4",
        cycle_navigation(),
        (0,) * _MOVES + (1,) * _DIGITS,
        _moves_and_digit,
    ),
    _language(
        "modular-arithmetic-simple",
        "arithmetic without precedence, and its value mod 5",
        "+ - * = 0 1 2 3 4",
        modular_arithmetic(),
        (0, 0, 0, 1) + (2,) * MODULUS,
        _expression,
    ),
    _language(
        "dyck-2-3",
        "balanced, two kinds of brackets, at most three deep",
        "(0 )0 (1 )1",
        dyck_2_3(),
        (0, 1, 0, 1),
        as_many_opens,
    ),
    _language("first", "begins with 1", "0 1", first(), (0, 0)),
)
