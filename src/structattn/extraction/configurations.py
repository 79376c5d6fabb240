"""The symbols that can follow a prefix in the strings of an automaton, by following all of its runs at once.

Runs with the same control and top are followed together: what can lie below is a set, as in Tomita's graph-structured
stack (1987), so that the number of runs does not matter.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from structattn.extraction.automaton import PushdownAutomaton, Start, Transition
from structattn.extraction.to_grammar import productive
from structattn.support.grouping import grouped
from structattn.tasks.formal_languages.grammar import EmptyLanguageError
from structattn.tasks.formal_languages.next_symbols import END


class Stacks:
    """Stacks with one item on top; equal ones are the same object.

    Args:
        top: the item on top.
        below: what can lie below it; nothing at the bottom.
        alive: the controls from which the end of a string can be reached with one of these stacks.
    """

    __slots__ = ("alive", "below", "top")

    def __init__(self, top: int, below: "frozenset[Stacks]", alive: frozenset[int]) -> None:
        self.top, self.below, self.alive = top, below, alive


class _Reached(NamedTuple):
    """A control and the item on top, and what can lie below."""

    control: int
    stacks: Stacks


Configurations = frozenset[_Reached]


class Simulator:
    """Reads strings of an automaton symbol by symbol, in all of its configurations that can reach an end.

    Raises:
        EmptyLanguageError: it accepts no string.
    """

    def __init__(self, automaton: PushdownAutomaton) -> None:
        self._finals = {(each.control, each.top) for each in automaton.finals}
        self._steps = grouped(automaton.transitions, lambda each: (each.source, each.top))
        self._ends: dict[int, set[int]] = {}  # item -> controls from which the string can end without popping it
        self._pops: dict[int, list[tuple[int, int]]] = {}  # item -> controls before and after all until it is popped
        for symbol in productive(automaton):
            if len(symbol) == 2:
                self._ends.setdefault(symbol[1], set()).add(symbol[0])
            elif len(symbol) == 3:
                self._pops.setdefault(symbol[1], []).append((symbol[0], symbol[2]))
        self._stacks: dict[tuple[int, frozenset[Stacks]], Stacks] = {}
        self._prefixes: dict[Configurations, SimulatedPrefix] = {}
        self.start = self._prefix(self._joined(map(self._of_start, automaton.starts)))
        if not self.start.configurations:
            raise EmptyLanguageError("the automaton accepts no string")

    def _of_start(self, start: Start) -> tuple[int, int, frozenset[Stacks]]:
        *rest, top = start.stack
        below: frozenset[Stacks] = frozenset()
        for item in rest:
            below = frozenset([self._with(item, below)])
        return start.control, top, below

    def _with(self, top: int, below: frozenset[Stacks]) -> Stacks:
        known = self._stacks.get((top, below))
        if known is None:
            controls = frozenset[int]().union(*(each.alive for each in below))
            popped = {before for before, after in self._pops.get(top, ()) if after in controls}
            known = self._stacks[top, below] = Stacks(top, below, frozenset(popped.union(self._ends.get(top, ()))))
        return known

    def _joined(self, found: Iterable[tuple[int, int, frozenset[Stacks]]]) -> Configurations:
        """Join what has the same control and top, and drop what can reach no end."""
        below: dict[tuple[int, int], frozenset[Stacks]] = {}
        for control, top, stacks in found:
            below[control, top] = below.get((control, top), frozenset()) | stacks
        reached = (_Reached(control, self._with(top, stacks)) for (control, top), stacks in below.items())
        return frozenset(each for each in reached if each.control in each.stacks.alive)

    def _prefix(self, configurations: Configurations) -> "SimulatedPrefix":
        """Return the prefixes after which these are all configurations: one object, whose successors are kept."""
        if configurations not in self._prefixes:
            self._prefixes[configurations] = SimulatedPrefix(self, configurations)
        return self._prefixes[configurations]

    def after(self, configurations: Configurations) -> "dict[str, SimulatedPrefix]":
        """Return what follows each symbol that can follow; with ``END``, if a string can end."""
        popped: dict[str, list[tuple[int, int, frozenset[Stacks]]]] = {}
        pushed: dict[str, dict[tuple[int, int, int], frozenset[Stacks]]] = {}  # control, top, item below it
        for control, stacks in configurations:
            for each in self._steps.get((control, stacks.top), ()):
                if each.action == "push":
                    assert each.item is not None
                    of_symbol = pushed.setdefault(each.symbol, {})
                    key = each.target, each.item, stacks.top
                    of_symbol[key] = of_symbol.get(key, frozenset()) | stacks.below
                else:
                    popped.setdefault(each.symbol, []).extend(_uncovered(each, stacks))
        for symbol, of_symbol in pushed.items():
            new = (
                (control, top, frozenset([self._with(under, rest)]))
                for (control, top, under), rest in of_symbol.items()
            )
            popped.setdefault(symbol, []).extend(new)
        following = {symbol: self._prefix(self._joined(each)) for symbol, each in popped.items()}
        found = {symbol: each for symbol, each in following.items() if each.configurations}
        if any((control, stacks.top) in self._finals for control, stacks in configurations):
            found[END] = self._prefix(frozenset())
        return found


def _uncovered(each: Transition, stacks: Stacks) -> Iterator[tuple[int, int, frozenset[Stacks]]]:
    """Yield control, top and what can lie below after a replacement, or after a pop."""
    if each.item is not None:
        yield each.target, each.item, stacks.below
    else:
        yield from ((each.target, below.top, below.below) for below in stacks.below)


class SimulatedPrefix:
    """A prefix of at least one string of an automaton."""

    def __init__(self, simulator: Simulator, configurations: Configurations) -> None:
        self._simulator, self.configurations = simulator, configurations

    @cached_property
    def _after(self) -> "dict[str, SimulatedPrefix]":
        return self._simulator.after(self.configurations)

    @cached_property
    def next_symbols(self) -> frozenset[str]:
        """The symbols that follow the prefix in some string, and ``END`` if it is a string itself."""
        return frozenset(self._after)

    def extended(self, symbol: str) -> "SimulatedPrefix | None":
        """Return the prefix that is one symbol longer; None if it begins no string."""
        return None if symbol == END else self._after.get(symbol)
