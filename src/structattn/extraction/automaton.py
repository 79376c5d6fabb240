"""Pushdown automata that read a symbol at each step, as the stacks of trained models do."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Action = Literal["push", "replace", "pop"]
BOTTOM = 0
"""The item at the bottom of the stack, which can be replaced, never popped."""


class Transition(NamedTuple):
    """``source, symbol, top -> action, target, item``; ``item`` is what a push or replacement leaves on top."""

    source: int
    symbol: str
    top: int
    action: Action
    target: int
    item: int | None


class Configuration(NamedTuple):
    """A control, and the item on top."""

    control: int
    top: int


class Start(NamedTuple):
    """A control, and the stack, bottom first, before the first symbol."""

    control: int
    stack: tuple[int, ...]


@dataclass(frozen=True)
class PushdownAutomaton:
    """A nondeterministic pushdown automaton, without steps that read nothing; it accepts by control and top.

    Args:
        transitions: each with the number of strings that it was seen in.
        finals: where a string can end, whatever lies below the top.
    """

    alphabet: tuple[str, ...]
    starts: frozenset[Start]
    transitions: Mapping[Transition, int]
    finals: frozenset[Configuration]

    @property
    def controls(self) -> tuple[int, ...]:
        """All controls, in ascending order."""
        used = {each.control for each in self.starts} | {each.control for each in self.finals}
        return tuple(sorted(used.union(*((each.source, each.target) for each in self.transitions))))

    @property
    def items(self) -> tuple[int, ...]:
        """All stack items, in ascending order."""
        used = {item for each in self.starts for item in each.stack} | {each.top for each in self.finals}
        for each in self.transitions:
            used |= {each.top} if each.item is None else {each.top, each.item}
        return tuple(sorted(used))

    @property
    def num_choices(self) -> int:
        """The number of (control, symbol, top) with several transitions, and 1 for several starts."""
        steps = Counter(each[:3] for each in self.transitions).values()
        return sum(count > 1 for count in (*steps, len(self.starts)))

    @property
    def is_deterministic(self) -> bool:
        """Whether no step and no start leaves a choice."""
        return self.num_choices == 0

    def renamed(self, control: Callable[[int], int], item: Callable[[int], int]) -> "PushdownAutomaton":
        """Return the automaton with other numbers; what gets equal numbers is merged, and its counts are added."""
        transitions = Counter[Transition]()
        for each, count in self.transitions.items():
            new = Transition(
                control(each.source),
                each.symbol,
                item(each.top),
                each.action,
                control(each.target),
                None if each.item is None else item(each.item),
            )
            transitions[new] += count
        return PushdownAutomaton(
            self.alphabet,
            frozenset(Start(control(each.control), tuple(map(item, each.stack))) for each in self.starts),
            transitions,
            frozenset(Configuration(control(each.control), item(each.top)) for each in self.finals),
        )

    def merged(self, kept: int, dropped: int, what: Literal["controls", "items"]) -> "PushdownAutomaton":
        """Return the automaton with two controls, or two items, made one."""

        def same(value: int) -> int:
            return kept if value == dropped else value

        def unchanged(value: int) -> int:
            return value

        return self.renamed(same, unchanged) if what == "controls" else self.renamed(unchanged, same)

    def numbered(self) -> "PushdownAutomaton":
        """Return the automaton with controls from 0 and items from 1, without gaps; the bottom stays 0."""
        items = _positions(sorted({BOTTOM, *self.items}))
        return self.renamed(_positions(self.controls).__getitem__, items.__getitem__)


def _positions(values: Iterable[int]) -> dict[int, int]:
    return {value: position for position, value in enumerate(values)}
