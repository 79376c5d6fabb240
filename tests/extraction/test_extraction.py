"""Extraction from a stack with chosen weights: what it shows, and its letters."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from structattn.attention import NondeterministicStackAttention, SuperpositionStackAttention
from structattn.extraction.comparison import compare
from structattn.extraction.configurations import Simulator
from structattn.extraction.letters import covering, find_letters
from structattn.extraction.minimization import minimized
from structattn.extraction.stacks import (
    Allowed,
    NondeterministicReader,
    Observation,
    Step,
    SuperpositionReader,
    projection_hook,
)
from structattn.extraction.transitions import Evidence, automaton_of
from structattn.tasks.formal_languages.next_symbols import Recognizer, contains
from structattn.tasks.formal_languages.registry import GRAMMARS

BRACKETS = {"(": ("push", 1), "[": ("push", 2), ")": ("pop", 1), "]": ("pop", 2)}


SYMBOLS = ("<pad>", "<bos>", "<eos>", "(", ")", "[", "]")


def reader_of_brackets():
    """Return a nondeterministic reader with 1 state and 3 symbols, and its output for an id."""
    reader = NondeterministicReader(NondeterministicStackAttention(4, 1, 3, 2, pop_offset=1.5))
    rows = {}
    for index, symbol in enumerate(SYMBOLS[1:], start=1):
        action, item = BRACKETS.get(symbol, ("replace", 0))
        tops = [0] if action == "replace" else [item] if action == "pop" else [0, 1, 2]
        steps = [Allowed(0, top, Step(action, 0, 0 if action == "pop" else item)) for top in tops]
        weights = reader.only(steps).clamp(min=-20)
        rows[index] = torch.cat([weights, torch.full((2,), float(index))])
    return reader, rows


def observations_of(reader, rows, strings):
    """Observe strings with these outputs of the projection."""
    found = []
    for string in strings:
        ids = [1, *(SYMBOLS.index(symbol) for symbol in string)]
        output = torch.stack([rows[each] for each in ids])[None]
        runs = reader.runs(output, torch.tensor([len(ids)]))[0]
        features = reader.features(output)[0].double().numpy()
        values = output[0, :, reader.sizes[0] :].double().numpy()
        found.append(Observation(np.array(ids), features, values, np.zeros((len(ids), 5)), tuple(runs)))
    return found


def extracted(reader, observations):
    letters, evidence = find_letters(reader, observations), Evidence()
    for each in observations:
        evidence.add(letters.read(each.ids, each.features), each.runs, letters.vectors)
    return automaton_of(evidence, letters, SYMBOLS)


def test_a_stack_with_the_transitions_of_brackets_shows_their_language():
    dyck = Recognizer(GRAMMARS["dyck"]())
    strings = [string for length in (2, 4, 6) for string in product(BRACKETS, repeat=length) if contains(dyck, string)]
    reader, rows = reader_of_brackets()
    minimal = minimized(extracted(reader, observations_of(reader, rows, strings)))
    assert compare(Simulator(minimal.automaton), dyck, tuple(BRACKETS), 8).is_equal
    assert minimal.automaton.is_deterministic
    assert len(minimal.automaton.items) == 3


def test_a_symbol_may_be_named_like_a_special_token():
    reader, rows = reader_of_brackets()
    (observed,) = observations_of(reader, rows, ["()[]"])
    letters, evidence = find_letters(reader, [observed]), Evidence()
    evidence.add(letters.read(observed.ids, observed.features), observed.runs, letters.vectors)
    automaton = automaton_of(evidence, letters, (*SYMBOLS[:3], "<bos1>", *SYMBOLS[4:]))
    assert automaton.alphabet == ("<bos1>", ")", "[", "]")


def test_symbols_of_samples_alone_are_read_as_themselves():
    """Validation strings need not have all symbols of a large alphabet."""
    reader, rows = reader_of_brackets()
    valid, sampled = (observations_of(reader, rows, strings) for strings in (["()"], ["()()", "[]()"]))
    letters = find_letters(reader, covering(valid, sampled))
    read = letters.read(sampled[1].ids, sampled[1].features)
    assert [SYMBOLS[letters.symbol_of(each)] for each in read[1:]] == list("[]()")
    with pytest.raises(KeyError):
        find_letters(reader, valid).read(sampled[1].ids, sampled[1].features)
    padded = find_letters(reader, valid).read(np.array([0]), valid[0].features[:1])
    assert len(padded) == 1


def test_transitions_are_kept_in_the_order_of_the_steps():
    """The numbers of controls, and so what is merged first, are the same in every process."""
    reader, rows = reader_of_brackets()
    (observed,) = observations_of(reader, rows, ["[(([]))][([])]"])
    letters, evidence = find_letters(reader, [observed]), Evidence()
    read = letters.read(observed.ids, observed.features)
    evidence.add(read, observed.runs, letters.vectors)
    pairs = dict.fromkeys((each.before, each.letter) for each in evidence.transitions)
    assert list(pairs) == list(dict.fromkeys(pairwise(read)))


def test_runs_are_those_of_each_prefix():
    """The run of a prefix pushes what is probable so far; the whole string, which pops 2, needs a push of 2."""
    reader, rows = reader_of_brackets()
    moves = 3
    guess = torch.full((1, moves, 2 * moves + 1), -20.0)
    guess[0, 0, 1], guess[0, 0, 2] = 0.0, -1.0  # push 1 rather than 2, on the bottom
    rows[3] = torch.cat([guess.flatten() - reader._offset(), torch.zeros(2)])
    (observed,) = observations_of(reader, rows, ["(]"])
    assert [each[1].symbol for each in observed.runs[1:]] == [1, 2]
    assert [each.action for each in observed.runs[-1]] == ["replace", "push", "pop"]


def test_a_superposition_stack_shows_its_most_probable_actions():
    reader = SuperpositionReader(SuperpositionStackAttention(4, 2))
    output = torch.tensor([[[0.0, 9, 0, 0, 0], [9, 0, 0, 1, 1], [0, 0, 9, 0, 0], [0, 0, 9, 0, 0]]])
    (runs,) = reader.runs(output, torch.tensor([4]))
    assert [each.action for each in runs[-1]] == ["replace", "push", "pop", "replace"]  # a pop of nothing keeps it
    only = reader.only([Allowed(0, 0, Step("pop", 0, 0))])
    assert torch.softmax(only, -1).tolist() == [0, 0, 1]


def test_features_and_weights_are_inverse_up_to_a_constant():
    reader, _ = reader_of_brackets()
    output = torch.randn(2, 3, sum(reader.sizes))
    again = reader.features(reader.weights(reader.features(output)))
    torch.testing.assert_close(again, reader.features(output))


def test_letters_split_what_differs_and_merge_vectors_that_are_close():
    reader = SuperpositionReader(SuperpositionStackAttention(4, 2))
    draw = np.random.default_rng(0)
    ids = np.array([3, 4] * 50)
    features = np.where(np.arange(100)[:, None] % 4 == 0, [0.0, -9, -9], [-9, 0.0, -9]) + draw.normal(0, 0.1, (100, 3))
    values = np.where(ids[:, None] == 3, 5.0, 4.8) + np.zeros((100, 2))
    letters = find_letters(reader, [Observation(ids, features, values, np.zeros((100, 3)))])
    assert [len(each) for each in letters.of_symbol.values()] == [2, 1]
    assert letters.num_vectors == 1
    read = letters.read(ids, features)
    assert read == letters.read_batch(torch.from_numpy(ids)[None], torch.from_numpy(features)[None])[0].tolist()
    assert len(set(read[::4])) == 1
    assert set(read[::4]).isdisjoint(read[2::4])


def test_projections_are_read_and_replaced_in_one_thread():
    reader, x, seen = SuperpositionReader(SuperpositionStackAttention(4, 2)), torch.ones(1, 3, 4), []
    with ThreadPoolExecutor(1) as other:
        expected = reader.layer(x)
        with projection_hook(reader, lambda output: seen.append(output) or -output):
            assert torch.equal(other.submit(reader.layer, x).result(), expected)
            assert not torch.allclose(reader.layer(x), expected)
    assert len(seen) == 1
