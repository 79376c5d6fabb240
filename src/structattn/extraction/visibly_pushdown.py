"""Learn a visibly pushdown automaton from accepted strings, and from answers to which other ones are accepted.

Each letter calls (pushes), returns (pops) or does neither. Then two well-matched words differ only by what can stand
around them, and the classes of those that do not are states (Alur et al. 2005, "Congruences for visibly pushdown
languages"): a module of states for each call that words can stand in, and one for the outermost level. What stands
around a word is taken from accepted strings, so that what is asked is never far from them. Words are of one class where
nearly all answers are equal, as answers of a model can be wrong near its threshold.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from structattn.extraction.automaton import BOTTOM, Configuration, PushdownAutomaton, Start, Transition
from structattn.support.shapes import Bool

Kind = Literal["call", "return", "internal"]
MAX_CONTEXTS = 40
"""Of each module."""
MAX_CLASSES = 6
"""Of each module."""
MAX_DIFFERENCE = 0.25
"""Of the contexts that accept one of two words, the share that may reject the other one of the same class."""
MIN_ACCEPTED = 0.1
"""A word is useless if it is accepted in a smaller share of contexts than the word that is accepted in most."""


class Letter(NamedTuple):
    """A symbol, and what it does to the stack."""

    symbol: str
    kind: Kind


Word = tuple[Letter, ...]
Module = Letter | None
"""The call that a word stands in; None at the outermost level."""


class State(NamedTuple):
    """The class, from 0 for the empty word, of what was read since the last call that has not returned."""

    module: Module
    number: int


class Question(NamedTuple):
    """Whether what is before and after, which stand so in an accepted string, can have this word between them."""

    before: Word
    word: Word
    after: Word


Answers = Callable[[Sequence[Question]], Bool[np.ndarray, " questions"]]


class NotVisiblyPushdownError(ValueError):
    """Calls and returns do not match, or there are too many classes of words."""


@dataclass(frozen=True)
class VisiblyPushdown:
    """A deterministic visibly pushdown automaton: a call pushes the state, and leads to the first state of its module.

    Args:
        sizes: the number of states of each module.
        internals: state, letter -> state.
        returns: state pushed, state, letter -> state.
        finals: the states, of the outermost level, in which a string can end.
    """

    sizes: Mapping[Module, int]
    internals: Mapping[tuple[State, Letter], State]
    returns: Mapping[tuple[State, State, Letter], State]
    finals: frozenset[State] = frozenset()

    def states(self, word: Word) -> list[State | None]:
        """Return the states before the first and after each letter; None from the first one that cannot be read."""
        state: State | None = State(None, 0)
        stack, found = list[State](), [state]
        for letter in word:
            if state is None:
                pass
            elif letter.kind == "call":
                stack.append(state)
                state = State(letter, 0) if letter in self.sizes else None
            elif letter.kind == "return":
                state = self.returns.get((stack.pop(), state, letter)) if stack else None
            else:
                state = self.internals.get((state, letter))
            found.append(state)
        return found

    def automaton(self, alphabet: tuple[str, ...], first: Letter | None = None) -> PushdownAutomaton:
        """Return it with pushes, replacements and pops; it starts after the call ``first``, which is no symbol."""
        states = (State(module, number) for module, size in self.sizes.items() for number in range(size))
        numbers = {state: number for number, state in enumerate(states)}
        outermost = State(None, 0)
        callers = [state for state in numbers if state != outermost or first is None]

        def item(state: State) -> int:
            return BOTTOM + 1 + numbers[state]

        def tops(module: Module) -> list[int]:
            within = [outermost] if module == first else callers
            return [BOTTOM] if module is None else [item(each) for each in within]

        found = [
            Transition(numbers[state], letter.symbol, top, "replace", numbers[target], top)
            for (state, letter), target in self.internals.items()
            for top in tops(state.module)
        ]
        found += [
            Transition(numbers[state], call.symbol, top, "push", numbers[State(call, 0)], item(state))
            for state, call in product(callers, self.sizes)
            if call is not None and call != first
            for top in tops(state.module)
        ]
        found += [
            Transition(numbers[state], letter.symbol, item(pushed), "pop", numbers[target], None)
            for (pushed, state, letter), target in self.returns.items()
        ]
        start = Start(numbers[outermost], (BOTTOM,))
        if first is not None:
            start = Start(numbers[State(first, 0)], (BOTTOM, item(outermost)))
        finals = frozenset(Configuration(numbers[state], BOTTOM) for state in self.finals)
        return PushdownAutomaton(alphabet, frozenset([start]), dict.fromkeys(found, 1), finals)


def matched(word: Word) -> list[int] | None:
    """Return, for each position between letters, that of the call around it, -1 at the outermost level.

    None if calls and returns do not match.
    """
    around, found = [-1], [-1]
    for position, letter in enumerate(word):
        if letter.kind == "call":
            around.append(position)
        elif letter.kind == "return":
            around.pop()
            if not around:
                return None
        found.append(around[-1])
    return found if len(around) == 1 else None


def learn(words: Sequence[Word], answers: Answers, seed: int = 0) -> VisiblyPushdown:
    """Learn an automaton, without its finals, from accepted words that are well matched.

    The outermost level is learned last, and there words are asked about that are as long as those they stand for: a
    model that was trained on long strings may not end short ones.

    Raises:
        NotVisiblyPushdownError: there are no calls, or too many classes.

    Cost: at most ``MAX_CONTEXTS`` questions for each state and internal letter, and for each two states and return.
    """
    contexts = _contexts(words, np.random.default_rng(seed))
    if len(contexts) < 2:
        raise NotVisiblyPushdownError("no letter calls")
    learner = _Learner(
        sorted({letter for word in words for letter in word}),
        {module: _Module(around, module is None) for module, around in sorted(contexts.items(), key=str)},
        answers,
    )
    learner.close([module for module in learner.modules if module is not None])
    learner.close([None], words)
    return learner.automaton()


class _Context(NamedTuple):
    """What stands before and after a word, and the length of the word that stands there in an accepted string."""

    before: Word
    after: Word
    length: int


@dataclass
class _Module:
    """Contexts of words; and of each class the words that were met, by length, and the answers about the first."""

    contexts: list[_Context]
    outermost: bool
    words: list[dict[int, Word]] = field(default_factory=list)
    answers: list[np.ndarray] = field(default_factory=list)

    def number(self, word: Word, answers: np.ndarray) -> int | None:
        """Return the class of a word, a new one where it is like no other; None for a useless word.

        Where strings begin is a class of its own, as the empty string need not be one.
        """
        if self.words:
            differences = [(answers != each).sum() / max(1, (answers | each).sum()) for each in self.answers]
            differences[0] = np.inf if self.outermost else differences[0]
            nearest = int(np.argmin(differences))
            if answers.any() and differences[nearest] <= MAX_DIFFERENCE:
                return nearest
            if answers.sum() <= MIN_ACCEPTED * max(each.sum() for each in self.answers):
                return None
        if len(self.words) == MAX_CLASSES:
            raise NotVisiblyPushdownError(f"more than {MAX_CLASSES} classes of words")
        self.words.append({len(word): word})
        self.answers.append(answers)
        return len(self.words) - 1


Internal = tuple[State, Letter]
Return = tuple[State, State, Letter]


@dataclass
class _Learner:
    letters: Sequence[Letter]
    modules: Mapping[Module, _Module]
    answers: Answers
    internals: dict[Internal, State | None] = field(default_factory=dict)
    returns: dict[Return, State | None] = field(default_factory=dict)

    def close(self, targets: Sequence[Module], words: Sequence[Word] = ()) -> None:
        """Ask about the empty word in some modules, and about each step that leads there from any known state.

        Known states are given words of many lengths, found in ``words``.
        """
        self._number([(module, lambda length: ()) for module in targets])
        while True:
            self._lengthen(words)
            steps = [each for each in self._steps(targets) if each not in self.internals]
            pops = [each for each in self._pops(targets) if each not in self.returns]
            if not steps and not pops:
                return
            asked = [(each[0].module, self._after_step(each)) for each in steps]
            asked += [(each[0].module, self._after_pop(each)) for each in pops]
            found = self._number(asked)
            self.internals.update(zip(steps, found, strict=False))
            self.returns.update(zip(pops, found[len(steps) :], strict=True))

    def _lengthen(self, words: Sequence[Word]) -> None:
        automaton = self.automaton()
        for word in words:
            for call, positions in _levels(word).items():
                read = automaton.states(word[max(0, call) : positions[-1]])
                for end in positions:
                    state = read[end - max(0, call)]
                    if state is not None:
                        begin = call + 1
                        self.modules[state.module].words[state.number].setdefault(end - begin, word[begin:end])

    def automaton(self) -> VisiblyPushdown:
        """Return what is known."""
        return VisiblyPushdown(
            {module: len(each.words) for module, each in self.modules.items()},
            {key: state for key, state in self.internals.items() if state is not None},
            {key: state for key, state in self.returns.items() if state is not None},
        )

    def _states(self, modules: Iterable[Module]) -> list[State]:
        return [State(module, number) for module in modules for number in range(len(self.modules[module].words))]

    def _steps(self, targets: Sequence[Module]) -> Iterator[Internal]:
        yield from product(self._states(targets), (each for each in self.letters if each.kind == "internal"))

    def _pops(self, targets: Sequence[Module]) -> Iterator[Return]:
        within = self._states(module for module in self.modules if module is not None)
        yield from product(self._states(targets), within, (each for each in self.letters if each.kind == "return"))

    def _after_step(self, step: Internal) -> Callable[[int], Word]:
        return lambda length: (*self._word(step[0], length - 1), step[1])

    def _after_pop(self, step: Return) -> Callable[[int], Word]:
        pushed, state, letter = step
        call = state.module
        assert call is not None

        def word(length: int) -> Word:
            before = self._word(pushed, length - 2)
            return (*before, call, *self._word(state, length - len(before) - 2), letter)

        return word

    def _word(self, state: State, length: int) -> Word:
        """Return the word of a class whose length is closest."""
        known = self.modules[state.module].words[state.number]
        return known[min(known, key=lambda each: abs(each - length))]

    def _number(self, asked: Sequence[tuple[Module, Callable[[int], Word]]]) -> list[State | None]:
        """Return the states of words of given lengths in their modules."""
        questions = [
            Question(before, word(length), after)
            for module, word in asked
            for before, after, length in self.modules[module].contexts
        ]
        given, found, done = self.answers(questions), list[State | None](), 0
        for module, word in asked:
            count = len(self.modules[module].contexts)
            number = self.modules[module].number(word(0), given[done : done + count])
            found.append(None if number is None else State(module, number))
            done += count
        return found


def _contexts(words: Sequence[Word], draw: np.random.Generator) -> dict[Module, list[_Context]]:
    """Return contexts of well-matched words in each module, half of them of empty ones.

    The others are of the shortest words within calls, as the words that are asked about there are short.
    """
    empty: dict[Module, dict[_Context, None]] = {}
    others: dict[Module, dict[_Context, None]] = {}
    for index in draw.permutation(len(words)).tolist():
        word = words[index]
        for call, positions in _levels(word).items():
            module = None if call < 0 else word[call]
            begin, end = np.sort(draw.choice(positions, 2)).tolist()
            if call >= 0 or begin > 0:  # what begins a string is asked about at the lengths of strings
                empty.setdefault(module, {})[_Context(word[:begin], word[begin:], 0)] = None
            if begin < end:
                others.setdefault(module, {})[_Context(word[:begin], word[end:], end - begin)] = None
    half, found = MAX_CONTEXTS // 2, dict[Module, list[_Context]]()
    for module in empty | others:
        longer = list(others.get(module, ()))
        longer = longer if module is None else sorted(longer, key=lambda each: each.length)
        found[module] = [*list(empty.get(module, ()))[:half], *longer[:half]]
    return found


def _levels(word: Word) -> dict[int, list[int]]:
    """Return the positions at the outermost level (-1), and within each call."""
    found: dict[int, list[int]] = {}
    for position, call in enumerate(matched(word) or ()):
        found.setdefault(call, []).append(position)
    return found
