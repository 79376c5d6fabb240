"""The second algorithm: a visibly pushdown automaton of the model's answers, with its pushes and pops as calls."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from structattn.extraction.agreement import Modelled
from structattn.extraction.calls import Calls, Oracle, candidates
from structattn.extraction.letters import covering, letters_of_granularities
from structattn.extraction.observations import Replacement, cross_entropy
from structattn.extraction.reading import CausalCheck, Subject
from structattn.extraction.stacks import Observation, StackReader
from structattn.extraction.visibly_pushdown import (
    Letter,
    NotVisiblyPushdownError,
    State,
    VisiblyPushdown,
    Word,
    learn,
    matched,
)
from structattn.support.special_tokens import BOS, EOS_CLASS


@dataclass(frozen=True)
class Learned:
    """An automaton, in terms of what letters do, and the causal check of its steps."""

    calls: Calls
    automaton: VisiblyPushdown
    causal: CausalCheck

    @property
    def first(self) -> Letter | None:
        """The call before the first symbol, if there is one."""
        return Letter(self.calls.symbols[BOS], "call") if self.calls.first else None


def learned_automata(
    subject: Subject, sampled: Sequence[Observation], modelled: Modelled, seed: int
) -> Iterator[Learned]:
    """Learn an automaton for each way to see calls and returns in what letters do to the stack."""
    for letters in letters_of_granularities(subject.reader, covering(subject.observed, sampled)):
        for calls in candidates(letters, sampled, modelled.symbols):
            try:
                automaton = _learned(subject, sampled, modelled, calls, seed)
            except NotVisiblyPushdownError:
                continue
            replacement = _step_means(subject.reader, calls, automaton, subject.observed)
            value = cross_entropy(subject.run, subject.reader, subject.valid, replacement)
            yield Learned(calls, automaton, CausalCheck(subject.cross_entropy, value, value, subject.disabled))


def _learned(
    subject: Subject, sampled: Sequence[Observation], modelled: Modelled, calls: Calls, seed: int
) -> VisiblyPushdown:
    words = [calls.word(each) for each in sampled]
    lengths = [len(each.ids) - 1 for each in sampled]
    nested = [word for word in words if matched(word) is not None]
    automaton = learn(nested, Oracle(subject, calls, modelled, (min(lengths), max(lengths))), seed)
    votes = Counter[State]()
    for word, observed in zip(words, sampled, strict=True):
        ends = observed.log_probabilities[:, EOS_CLASS] > modelled.log_threshold
        for state, length, can_end in _outermost(automaton, word, ends):
            votes[state] += 0 if length < min(lengths) else 1 if can_end else -1
    return replace(automaton, finals=frozenset(state for state, count in votes.items() if count > 0))


def _outermost(automaton: VisiblyPushdown, word: Word, ends: np.ndarray) -> Iterator[tuple[State, int, bool]]:
    """Yield the states of the outermost level, the lengths of the prefixes before, and whether these can end."""
    states = automaton.states(word)[-len(ends) :]  # after <bos> and after each symbol
    for length, (state, can_end) in enumerate(zip(states, ends.tolist(), strict=True)):
        if state is not None and state.module is None:
            yield state, length, can_end


def _step_means(
    reader: StackReader, calls: Calls, automaton: VisiblyPushdown, observed: Sequence[Observation]
) -> Replacement:
    """Return what replaces the outputs of the projection by their means over equal steps of an automaton."""
    outputs: dict[tuple[object, ...], list[np.ndarray]] = {}
    for each in observed:
        weights = reader.weights(torch.from_numpy(each.features)).numpy()
        for step, output in zip(
            _steps(calls, automaton, each.ids, each.features), np.concatenate([weights, each.values], 1), strict=True
        ):
            outputs.setdefault(step, []).append(output)
    means = {step: torch.from_numpy(np.mean(found, 0)) for step, found in outputs.items()}

    def replaced(ids: Tensor, output: Tensor) -> Tensor:
        new = output.clone()
        features = reader.features(output).double().cpu().numpy()
        for row, of_row in enumerate(ids.cpu().numpy()):
            for t, step in enumerate(_steps(calls, automaton, of_row, features[row])):
                if step in means:
                    new[row, t] = means[step].to(output)
        return new

    return replaced


def _steps(calls: Calls, automaton: VisiblyPushdown, ids: np.ndarray, features: np.ndarray) -> list[tuple[object, ...]]:
    """Return symbol, what it does, and the states before and after, of each step; ``<bos>`` is the first."""
    word = calls.letters_of(ids, features)
    states = automaton.states(word if calls.first else word[1:])
    states = states if calls.first else [states[0], *states]
    return list(zip(word, states, states[1:], strict=False))
