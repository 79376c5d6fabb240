"""The context-free grammar of a pushdown automaton.

[p X q] derives what is read from control p with X on top until X is popped and control q reached; [p X] what is read
from there to the end of the string, if X is never popped. Then

    pop      p, a, X -> q        [p X q] -> a
    replace  p, a, X -> r, Y     [p X q] -> a [r Y q]            [p X] -> a [r Y]
    push     p, a, X -> r, X Y   [p X q] -> a [r Y s] [s X q]    [p X] -> a [r Y] | a [r Y s] [s X]
    final    p, X                                                [p X] -> ε
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import product

from structattn.extraction.automaton import PushdownAutomaton, Start, Transition
from structattn.tasks.formal_languages.grammar import Grammar, Rule, deriving, pruned

Nonterminal = tuple[int, ...]  # () the start, (p, X) or (p, X, q)
Right = tuple["str | Nonterminal", ...]
MAX_RULES = 200_000
START: Nonterminal = ()


class TooManyRulesError(ValueError):
    """A grammar would be too large."""


def grammar_of(automaton: PushdownAutomaton) -> Grammar:
    """Return a grammar of the language, pruned, with equal alternatives of each nonterminal.

    Cost: controls² rules for each push.

    Raises:
        EmptyLanguageError: it accepts no string.
        TooManyRulesError: there are more than ``MAX_RULES`` rules.
    """
    rights = dict.fromkeys(_rules(automaton, _after_pops(automaton)))
    return _named(rights, automaton.alphabet)


def productive(automaton: PushdownAutomaton) -> "set[Nonterminal]":
    """Return the nonterminals [p X q] and [p X] that derive a string."""
    rules = [Rule(left, right, Fraction(1)) for left, right in _rules(automaton, _after_pops(automaton))]  # type: ignore[arg-type]
    return deriving(rules, automaton.alphabet)  # type: ignore[return-value]


def _after_pops(automaton: PushdownAutomaton) -> list[int]:
    """Return the controls after pops.

    Raises:
        TooManyRulesError: the grammar would have more than ``MAX_RULES`` rules.
    """
    popped = sorted({each.target for each in automaton.transitions if each.action == "pop"})
    pushes = sum(each.action == "push" for each in automaton.transitions)
    if pushes * (len(popped) + 1) ** 2 > MAX_RULES:
        raise TooManyRulesError(f"{pushes} pushes and {len(popped)} controls after pops; expected fewer")
    return popped


def _rules(automaton: PushdownAutomaton, popped: Sequence[int]) -> Iterator[tuple[Nonterminal, Right]]:
    for start in automaton.starts:
        yield from _of_start(start, popped)
    for each in automaton.transitions:
        yield from _of_transition(each, popped)
    for control, top in automaton.finals:
        yield (control, top), ()


def _of_start(start: Start, popped: Sequence[int]) -> Iterator[tuple[Nonterminal, Right]]:
    """Yield the rules by which the items of the first stack are popped one after another, from the top."""
    tops = start.stack[::-1]
    for count in range(len(tops)):
        for controls in product(popped, repeat=count):
            path = (start.control, *controls)
            read = tuple((path[i], tops[i], path[i + 1]) for i in range(count))
            yield START, (*read, (path[count], tops[count]))


def _of_transition(each: Transition, popped: Sequence[int]) -> Iterator[tuple[Nonterminal, Right]]:
    p, a, x, action, r, y = each
    if action == "pop":
        yield (p, x, r), (a,)
        return
    assert y is not None
    if action == "replace":
        yield (p, x), (a, (r, y))
        yield from (((p, x, q), (a, (r, y, q))) for q in popped)
        return
    yield (p, x), (a, (r, y))
    for s in popped:
        yield (p, x), (a, (r, y, s), (s, x))
        yield from (((p, x, q), (a, (r, y, s), (s, x, q))) for q in popped)


def _named(rules: Iterable[tuple[Nonterminal, Right]], alphabet: tuple[str, ...]) -> Grammar:
    """Prune the rules, and name the nonterminals, with names that are no symbols."""
    names: dict[Nonterminal, str] = {}
    taken = set(alphabet)

    def name(symbol: "str | Nonterminal") -> str:
        if isinstance(symbol, str):
            return symbol
        return names.setdefault(symbol, unused_name(f"N{len(names)}", taken))

    first = name(START)
    plain = [Rule(name(left), tuple(map(name, right)), Fraction(1)) for left, right in rules]
    return pruned(first, alphabet, plain)


def unused_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with as many primes as make it differ from those that are taken."""
    while name in taken:
        name += "'"
    return name
