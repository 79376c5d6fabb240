"""The pushes and pops of a trained stack as calls and returns, and the answers of the model about strings of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from structattn.extraction.agreement import Modelled
from structattn.extraction.letters import Letters
from structattn.extraction.observations import observe
from structattn.extraction.reading import Subject
from structattn.extraction.stacks import Observation
from structattn.extraction.visibly_pushdown import Kind, Letter, Question, Word, matched
from structattn.support.shapes import Bool
from structattn.support.special_tokens import BOS, EOS_CLASS, class_of

KINDS: Mapping[str, Kind] = {"push": "call", "pop": "return", "replace": "internal"}
MIN_NESTED = 0.98
"""Share of strings whose calls and returns must match."""


@dataclass(frozen=True)
class Calls:
    """What each letter of a stack does.

    Args:
        first: whether ``<bos>`` is a call that the end of each string returns from.
    """

    letters: Letters
    kinds: tuple[Kind, ...]
    symbols: Sequence[str]
    first: bool

    def letters_of(self, ids: np.ndarray, features: np.ndarray) -> Word:
        """Return what ``<bos>`` and each symbol do."""
        read = self.letters.read(ids, features)
        return tuple(Letter(self.symbols[index], self.kinds[each]) for index, each in zip(ids, read, strict=True))

    def word(self, observed: Observation) -> Word:
        """Return a string as letters that call, return or do neither, with ``<bos>`` if it calls."""
        return self.letters_of(observed.ids, observed.features)[0 if self.first else 1 :]


def candidates(letters: Letters, observed: Sequence[Observation], symbols: Sequence[str]) -> Iterator[Calls]:
    """Yield what letters can do, judged by the actions of best runs, if calls and returns match in nearly all strings.

    Best runs of whole strings, then of prefixes; by letter, then by symbol. Nothing without strings.
    """
    if not observed:
        return
    known = set[tuple[Kind, ...]]()
    for by_symbol in (False, True):
        for whole in (True, False):
            kinds = _kinds(letters, observed, by_symbol=by_symbol, whole=whole)
            if kinds in known:
                continue
            known.add(kinds)
            bos = kinds[letters.of_symbol[BOS][0]]
            for first in (True, False) if bos == "call" else (False,):
                calls = Calls(letters, kinds, symbols, first)
                nested = [matched(calls.word(each)) is not None for each in observed]
                if np.mean(nested) >= MIN_NESTED:
                    yield calls
                    break


def _kinds(letters: Letters, observed: Sequence[Observation], *, by_symbol: bool, whole: bool) -> tuple[Kind, ...]:
    group = [letters.symbol_of(each) if by_symbol else each for each in range(len(letters.features))]
    counts = {each: Counter[Kind]() for each in group}
    for each in observed:
        runs = each.runs or ()
        steps = runs[-1] if whole else [run[-1] for run in runs]
        for letter, step in zip(letters.read(each.ids, each.features), steps, strict=True):
            counts[group[letter]][KINDS[step.action]] += 1
    return tuple(max(counts[each], key=counts[each].__getitem__, default="internal") for each in group)


@dataclass(frozen=True)
class Oracle:
    """Answers of a model.

    Args:
        lengths: of strings, the shortest and the longest, after which the model says whether they can end.
    """

    subject: Subject
    calls: Calls
    modelled: Modelled
    lengths: tuple[int, int]

    def __call__(self, questions: Sequence[Question]) -> Bool[np.ndarray, " questions"]:
        """Return whether the model allows all symbols, letters are as in the question, and the string can end."""
        begun = self._accepted([each.before + each.word for each in questions], ends=False)
        whole = self._accepted(
            [each.before + each.word + each.after if ok else () for each, ok in zip(questions, begun, strict=True)],
            ends=True,
        )
        accepted: np.ndarray = begun & whole
        return accepted

    def _accepted(self, words: Sequence[Word], *, ends: bool) -> np.ndarray:
        unique = list(dict.fromkeys(words))
        ids = {symbol: index for index, symbol in enumerate(self.calls.symbols)}
        skipped = int(self.calls.first)
        readable = [word for word in unique if self._is_readable(word)]
        strings = [np.array([ids[each.symbol] for each in word[skipped:]], dtype=np.int64) for word in readable]
        observed = observe(self.subject.run, self.subject.reader, strings, what="questions")
        found = {word: self._is_accepted(word, each, ends=ends) for word, each in zip(readable, observed, strict=True)}
        return np.array([found.get(word, False) for word in words], dtype=bool)

    def _is_readable(self, word: Word) -> bool:
        length = len(word) - int(self.calls.first)
        if self.subject.readable(length) < length:
            return False
        bos = Letter(self.calls.symbols[BOS], "call")
        return not self.calls.first or (word[:1] == (bos,) and bos not in word[1:])

    def _is_accepted(self, word: Word, observed: Observation, *, ends: bool) -> bool:
        length = len(observed.ids) - 1
        asked = ends and self.lengths[0] <= length <= self.lengths[1]
        classes = np.append(class_of(observed.ids[1:]), EOS_CLASS)[: None if asked else -1]
        given = observed.log_probabilities[np.arange(len(classes)), classes]
        return bool((given > self.modelled.log_threshold).all()) and self.calls.word(observed) == word
