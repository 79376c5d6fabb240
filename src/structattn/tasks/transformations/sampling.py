"""Random sentences, and the pairs of the training, evaluation and generalisation sets made from them.

The weights of the published training, dev and test files are not documented: those of question formation are simple
ratios fitted to the published dev and test files, which the published grammar does not fit; see docs/papers.md.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Final

import numpy as np

from structattn.tasks.transformations.rules import (
    AUXILIARIES,
    DETERMINERS,
    INTRANSITIVE,
    NOUNS,
    NUMBER,
    PAST,
    PREPOSITIONS,
    RELATIVE_CLAUSES,
    RELATIVIZERS,
    TRANSITIVE,
    Number,
    Pair,
    Transformation,
    Words,
    parse,
)

INTRANSITIVE_VERB: Final = "intransitive"


@dataclass(frozen=True)
class Weights:
    """Relative frequencies of sentence shapes."""

    subject: Mapping[str, float]
    verb_phrase: Mapping[str, float]


WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        "question": Weights(
            {"none": 7.5, "PP": 3, "ORC": 2, "SRCi": 1, "SRCt": 1},
            {"intransitive": 3, "none": 3, "PP": 3, "ORC": 1, "SRCi": 2, "SRCt": 1},
        ),
        "tense": Weights(
            {"none": 3, "PP": 3, "ORC": 1, "SRCi": 1, "SRCt": 1},
            {"intransitive": 9, "none": 9, "PP": 9, "ORC": 3, "SRCi": 3, "SRCt": 3},
        ),
    }
)
"""Task -> weights of its training, validation and test sentences."""

GENERALIZATION_WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        "question": Weights(
            {"none": 3, "PP": 3, "ORC": 1, "SRCi": 1, "SRCt": 1},
            {"intransitive": 9, "none": 3, "PP": 3, "ORC": 1, "SRCi": 1, "SRCt": 1},
        ),
        "tense": WEIGHTS["tense"],
    }
)
"""Task -> weights of its generalisation sentences."""


class SentenceSampler:
    """Draws sentences of a task; words are independent and uniform within their class, numbers too.

    Args:
        weights: of sentence shapes.
        has_auxiliaries: put an auxiliary before each verb, which otherwise is in the past.
    """

    def __init__(self, generator: np.random.Generator, weights: Weights, has_auxiliaries: bool) -> None:
        self._random, self._has_auxiliaries = generator.random, has_auxiliaries
        self._subject, self._verb_phrase = _cumulative(weights.subject), _cumulative(weights.verb_phrase)

    def __call__(self) -> Words:
        """Return a sentence, which ends in its full stop."""
        number = self._number()
        words = [*self._noun(number), *self._modifier(self._drawn(self._subject), number)]
        shape = self._drawn(self._verb_phrase)
        if shape == INTRANSITIVE_VERB:
            return (*words, *self._verb(INTRANSITIVE, number), ".")
        words += self._verb(TRANSITIVE, number)
        number = self._number()
        return (*words, *self._noun(number), *self._modifier(shape, number), ".")

    def _modifier(self, kind: str, number: Number) -> list[str]:
        """Return the modifier of a noun."""
        if kind == "none":
            return []
        if kind == "PP":
            return [self._any(PREPOSITIONS), *self._noun(self._number())]
        words = [self._any(RELATIVIZERS)]
        if kind == "ORC":
            inner = self._number()
            return [*words, *self._noun(inner), *self._verb(TRANSITIVE, inner)]
        if kind == "SRCi":
            return [*words, *self._verb(INTRANSITIVE, number)]
        return [*words, *self._verb(TRANSITIVE, number), *self._noun(self._number())]

    def _verb(self, verbs: Sequence[str], number: Number) -> list[str]:
        verb = self._any(verbs)
        return [self._any(AUXILIARIES[number]), verb] if self._has_auxiliaries else [PAST[verb]]

    def _noun(self, number: Number) -> list[str]:
        return [self._any(DETERMINERS), self._any(NOUNS[number])]

    def _number(self) -> Number:
        return "singular" if self._random() < 0.5 else "plural"

    def _any(self, words: Sequence[str]) -> str:
        return words[int(self._random() * len(words))]

    def _drawn(self, shapes: "tuple[tuple[str, ...], list[float]]") -> str:
        names, ends = shapes
        return names[bisect_right(ends, self._random() * ends[-1])]


def _cumulative(weights: Mapping[str, float]) -> tuple[tuple[str, ...], list[float]]:
    return tuple(weights), list(accumulate(weights.values()))


def ambiguous_pairs(task: Transformation, generator: np.random.Generator, seen: set[Words]) -> Iterator[Pair]:
    """Yield pairs without end that fit both rules: of the training, validation and test sets.

    Withheld are questions of sentences whose subject has a relative clause, and sentences whose verbs the rules
    reinflect differently. Repetitions are dropped: of a source (question), or of a sentence under either task word
    (tense), and what is in ``seen``, to which all that is drawn is added.
    """
    sampler = SentenceSampler(generator, WEIGHTS[task.name], task.has_auxiliaries)
    while True:
        sentence = sampler()
        pair = task.pair(sentence, task.change_word if generator.random() < 0.5 else task.copy_word)
        key = _key(task, pair.source)
        if not _is_withheld(task, pair) and key not in seen:
            seen.add(key)
            yield pair


def disambiguating_pairs(task: Transformation, generator: np.random.Generator, seen: set[Words]) -> Iterator[Pair]:
    """Yield pairs without end on which the rules differ: of the generalisation set; see ``ambiguous_pairs``.

    Questions have a relative clause in the subject and two auxiliaries of one number and of different form, so that the
    wrong target agrees, too.
    """
    sampler = SentenceSampler(generator, GENERALIZATION_WEIGHTS[task.name], task.has_auxiliaries)
    while True:
        pair = task.pair(sampler(), task.change_word)
        key = _key(task, pair.source)
        if _disambiguates(task, pair) and key not in seen:
            seen.add(key)
            yield pair


def exclusion_keys(task: Transformation, sources: Sequence[Words]) -> set[Words]:
    """Return what ``seen`` must hold so that no pair with one of these sources is drawn."""
    return {_key(task, source) for source in sources}


def _key(task: Transformation, source: Words) -> Words:
    return source if task.name == "question" else source[:-1]


def _is_withheld(task: Transformation, pair: Pair) -> bool:
    if pair.source[-1] == task.copy_word:
        return False
    if task.name == "question":
        return task.modifier(pair.source) in RELATIVE_CLAUSES
    return task.wrong_target(pair.source) != pair.target


def _disambiguates(task: Transformation, pair: Pair) -> bool:
    sentence = pair.source[:-1]
    if task.name == "tense":
        return task.wrong_target(pair.source) != pair.target
    clause = parse(sentence, task.has_auxiliaries)
    if clause.modifier not in RELATIVE_CLAUSES or len(clause.agreements) != 2:
        return False
    (first, first_noun), (second, second_noun) = clause.agreements
    return NUMBER[sentence[first_noun]] == NUMBER[sentence[second_noun]] and sentence[first] != sentence[second]
