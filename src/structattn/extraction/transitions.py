"""The automaton that the best runs of prefixes show."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from structattn.extraction.automaton import BOTTOM, Configuration, PushdownAutomaton, Start, Transition
from structattn.extraction.letters import Letters
from structattn.extraction.stacks import Allowed, Run, Step
from structattn.support.special_tokens import BOS

Control = tuple[int, int]  # letter, state
StackItem = tuple[int, int]  # symbol, class of the vector; -1 for the bottom vector


@dataclass(frozen=True)
class Seen:
    """A transition of a stack in terms of the model, and what it does to the stack of items.

    Args:
        item: on top after it; None for a pop.
    """

    before: int
    state: int
    top: StackItem
    letter: int
    step: Step
    item: StackItem | None


@dataclass
class Evidence:
    """What strings show, each with the number of strings.

    Args:
        starts: letter and state after ``<bos>``, and the stack.
        transitions: after the first.
        finals: letter, state and top at the end of a string.
    """

    starts: Counter[tuple[Control, tuple[StackItem, ...]]] = field(default_factory=Counter)
    transitions: Counter[Seen] = field(default_factory=Counter)
    finals: Counter[tuple[Control, StackItem]] = field(default_factory=Counter)

    def add(self, letters: Sequence[int], runs: Sequence[Run], vectors: Sequence[int]) -> None:
        """Add a string: its letters, and the best run of each prefix."""
        starts, transitions = dict[Any, None](), dict[Seen, None]()  # in the order of the steps
        for index, run in enumerate(runs):
            known = index if index and run[:-1] == runs[index - 1] else 0  # of a run that only continues the one before
            start, seen, final = _followed(letters, run, vectors, known)
            starts[start] = None
            transitions |= dict.fromkeys(seen)
            if index == len(runs) - 1:
                self.finals[final] += 1
        self.starts.update(list(starts))
        self.transitions.update(list(transitions))

    def at_least(self, count: int) -> "Evidence":
        """Return what was seen in at least ``count`` strings."""
        return Evidence(*(Counter({each: n for each, n in part.items() if n >= count}) for part in self._parts()))

    def joined(self, other: "Evidence") -> "Evidence":
        """Return what either has, with the sum of the numbers of strings."""
        return Evidence(*(own + more for own, more in zip(self._parts(), other._parts(), strict=True)))

    def _parts(self) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
        return self.starts, self.transitions, self.finals


def _followed(
    letters: Sequence[int], run: Run, vectors: Sequence[int], known: int
) -> tuple[tuple[Control, tuple[StackItem, ...]], list[Seen], tuple[Control, StackItem]]:
    """Follow a run with its stack; return its start, its transitions from step ``known`` on, and where it ends."""
    stack: list[StackItem] = [(0, -1)]
    start: tuple[Control, tuple[StackItem, ...]] | None = None
    before, state, seen = -1, 0, list[Seen]()
    for index, (letter, step) in enumerate(zip(letters, run, strict=False)):
        top = stack[-1]
        item: StackItem | None = None
        if step.action == "push":
            item = step.symbol, vectors[letter]
            stack.append(item)
        elif step.action == "replace":
            item = step.symbol, top[1]
            stack[-1] = item
        else:
            stack.pop()
        if start is None:
            start = (letter, step.state), tuple(stack)
        elif index >= known:
            seen.append(Seen(before, state, top, letter, _clean(step), item))
        before, state = letter, step.state
    assert start is not None
    return start, seen, ((before, state), stack[-1])


def _clean(step: Step) -> Step:
    """Return the step without the symbol that a pop uncovers."""
    return step._replace(symbol=0) if step.action == "pop" else step


def automaton_of(evidence: Evidence, letters: Letters, symbols: Sequence[str]) -> PushdownAutomaton:
    """Return the automaton: its controls are letters with states, its items symbols with classes of vectors."""
    numbers: dict[Control, int] = {}
    items: dict[StackItem, int] = {(0, -1): BOTTOM}

    def control(*each: int) -> int:
        return numbers.setdefault((each[0], each[1]), len(numbers))

    def item(each: StackItem) -> int:
        return items.setdefault(each, len(items))

    starts = frozenset(Start(control(*each), tuple(map(item, stack))) for each, stack in evidence.starts)
    transitions = Counter[Transition]()
    for seen, count in evidence.transitions.items():
        new = Transition(
            control(seen.before, seen.state),
            symbols[letters.symbol_of(seen.letter)],
            item(seen.top),
            seen.step.action,
            control(seen.letter, seen.step.state),
            None if seen.item is None else item(seen.item),
        )
        transitions[new] += count
    finals = frozenset(Configuration(control(*each), item(top)) for each, top in evidence.finals)
    alphabet = tuple(symbols[each] for each in sorted(letters.of_symbol) if each != BOS)
    return PushdownAutomaton(alphabet, starts, transitions, finals)


def allowed_steps(
    evidence: Evidence, strings: Iterable[tuple[Sequence[int], Sequence[Run]]]
) -> dict[tuple[int, int], list[Allowed]]:
    """Return the steps of the stack after each letter (-1: none) at each letter, whatever the vector on top is.

    Args:
        evidence: all but the first steps.
        strings: of which all first steps are allowed: their letters, and the best run of each prefix.
    """
    first = ((-1, letters[0], Allowed(0, 0, run[0])) for letters, runs in strings for run in runs)
    later = ((each.before, each.letter, Allowed(each.state, each.top[0], each.step)) for each in evidence.transitions)
    found: dict[tuple[int, int], dict[Allowed, None]] = {}
    for before, letter, allowed in (*later, *first):
        found.setdefault((before, letter), {})[allowed] = None
    return {each: list(steps) for each, steps in found.items()}
