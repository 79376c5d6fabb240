"""Sampling: filters against explicit loops, frequencies by chi-square, randomness from the generator only."""

import math

import pytest
import torch
from torch.nn import functional as F

from structattn.decoding import DecodingStart, Sampling, greedy_search, pad_sequences, sample, start_translation
from structattn.support.special_tokens import EOS

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 0.5, 2.0, -math.inf], [3.0, 0.0, -1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(top_k=2),
    Sampling(top_p=0.6),
    Sampling(1.5, top_k=4, top_p=0.8),
]
# 99.99 % points of chi-square with 1 to 5 degrees of freedom.
CRITICAL = {0: 0.0, 1: 15.14, 2: 18.42, 3: 21.11, 4: 23.51, 5: 25.74}


def by_hand(logits, sampling):
    """Class by class: temperature, the k most probable, then the most probable until their sum reaches p."""
    weights = {c: math.exp(x / sampling.temperature) for c, x in enumerate(logits)}
    order = sorted(weights, key=lambda c: (-weights[c], c))[: sampling.top_k or len(weights)]
    total, kept, mass = sum(weights[c] for c in order), [], 0.0
    for c in order:
        if sampling.top_p is not None and mass >= sampling.top_p - 1e-12:
            break
        kept.append(c)
        mass += weights[c] / total
    return [weights[c] / sum(weights[k] for k in kept) if c in kept else 0.0 for c in range(len(logits))]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_filters_match_explicit_loops(sampling):
    result = sampling.probabilities(LOGITS)
    expected = torch.tensor([by_hand(row, sampling) for row in LOGITS.tolist()], dtype=torch.float64)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-15)


def test_the_order_of_the_filters_matters_and_is_documented():
    logits = torch.tensor([[math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]], dtype=torch.float64)
    both = Sampling(top_k=2, top_p=0.5).probabilities(logits)  # of 4 / 7 and 3 / 7 the first is enough
    torch.testing.assert_close(both, torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64))
    alone = Sampling(top_p=0.5).probabilities(logits)
    torch.testing.assert_close(alone, torch.tensor([[4 / 7, 3 / 7, 0, 0]], dtype=torch.float64))


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    assert Sampling(top_p=0.5).probabilities(torch.zeros(1, 4)).tolist() == [[0.5, 0.5, 0, 0]]


def test_the_smallest_top_p_leaves_the_first_class():
    found = Sampling(top_p=5e-324).probabilities(LOGITS.float())
    assert torch.equal(found, torch.nn.functional.one_hot(LOGITS.argmax(-1), LOGITS.shape[-1]).float())


class Ends:
    """A model that ends each line at once, and its state."""

    def step(self, tokens, state):
        return torch.tensor([[5.0, -5.0]] * len(tokens)), state

    def select(self, indices):
        return self


@pytest.mark.parametrize(("limit", "finished", "text"), [(2, False, (EOS, EOS)), (3, True, (EOS, EOS))])
def test_a_text_of_several_lines_is_finished_after_the_last(limit, finished, text):
    start = DecodingStart(Ends(), torch.tensor([1]))
    (found,) = sample(Ends(), start, limit, torch.Generator(), Sampling(0.0), num_eos=3)
    assert (found.finished, found.text, found.tokens) == (finished, text, (EOS,) * limit)


def test_ties_at_the_kth_place_go_to_the_lower_class():
    assert (Sampling(top_k=3).probabilities(LOGITS)[1] > 0).tolist() == [True, True, False, True, False, False]


def test_top_p_of_1_filters_nothing():
    logits = 2 * torch.randn(1, 50000, generator=torch.Generator().manual_seed(0))
    found = Sampling(top_p=1.0).probabilities(logits)
    torch.testing.assert_close(found, Sampling().probabilities(logits))
    assert (found > 0).all()


def test_one_class_always_remains():
    assert Sampling(top_p=1e-9).probabilities(LOGITS).sum(1).tolist() == [1.0, 1.0]
    assert Sampling(temperature=1e-300).probabilities(LOGITS).sum(1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_temperatures(written, dtype):
    uniform = Sampling(temperature=1e300).probabilities(LOGITS.to(dtype))
    torch.testing.assert_close(uniform[0], torch.tensor([0.2] * 5 + [0.0], dtype=dtype))
    least = torch.finfo(dtype).tiny
    coldest = Sampling(least).probabilities(LOGITS.to(dtype))
    torch.testing.assert_close(coldest[0], torch.tensor([0, 0, 0.5, 0, 0.5, 0], dtype=dtype))
    model = written(None)
    model.step = lambda tokens, state: (LOGITS[:1].to(dtype), state)
    for temperature in (least / 2, 1e-320):
        (text,) = sample(model, model.start(), 20, torch.Generator().manual_seed(0), Sampling(temperature))
        assert text.tokens == (4,) * 20


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_frequencies_are_the_probabilities(written, sampling):
    draws = 4000
    model = written(lambda sentence, step, token: [0.0] * 6)
    model.step = lambda tokens, state: (LOGITS[:1].expand(len(tokens), -1), state)
    texts = sample(model, model.start(draws), 1, torch.Generator().manual_seed(7), sampling)
    counts = torch.bincount(torch.tensor([text.tokens[0] - 2 for text in texts]), minlength=6)
    expected = draws * torch.tensor(by_hand(LOGITS[0].tolist(), sampling))
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_square <= CRITICAL[int(possible.sum()) - 1]


@pytest.mark.parametrize("top_k", [0, -1, 2.5, float("nan"), float("inf")])
def test_a_number_of_classes_is_whole(top_k):
    with pytest.raises(ValueError, match=f"top_k={top_k}; expected a whole number of at least 1"):
        Sampling(top_k=top_k)


def test_the_log_probability_is_that_of_the_unfiltered_model(written):
    model = written(lambda sentence, step, token: LOGITS[step % 2])
    (text,) = sample(model, model.start(), 6, torch.Generator().manual_seed(1), Sampling(2.0, top_k=3))
    predictions = F.log_softmax(LOGITS, -1)
    expected = sum(predictions[step % 2, token - 2].item() for step, token in enumerate(text.tokens))
    assert text.log_probability == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mechanism", ["softmax", "nondeterministic", "two_stream"])
def test_temperature_0_is_greedy(translator, sources, mechanism):
    model, (ids, lengths) = translator(mechanism, 6), pad_sequences(sources(5))
    start = start_translation(model, ids, lengths)
    assert sample(model, start, 8, torch.Generator(), Sampling(0.0)) == greedy_search(model, start, 8)


def test_randomness_comes_from_the_generator_only(translator, sources):
    model, (ids, lengths) = translator("softmax", 6), pad_sequences(sources(5))
    start = start_translation(model, ids, lengths)

    def drawn(seed, other):
        torch.manual_seed(other)
        return sample(model, start, 8, torch.Generator().manual_seed(seed))

    assert drawn(1, 2) == drawn(1, 3)
    assert drawn(1, 2) != drawn(4, 2)


def test_a_generator_for_each_sentence_makes_its_text_independent_of_the_others(translator, sources):
    model, lines = translator("softmax", 6), sources(5)

    def drawn(numbers):
        start = start_translation(model, *pad_sequences([lines[number] for number in numbers]))
        return sample(model, start, 8, [torch.Generator().manual_seed(40 + number) for number in numbers])

    together, apart = drawn(range(5)), [drawn([number])[0] for number in range(5)]
    assert [text.tokens for text in together] == [text.tokens for text in apart]
    with pytest.raises(ValueError, match="1 generators for 5 sentences"):
        sample(model, start_translation(model, *pad_sequences(lines)), 8, [torch.Generator()])


def test_prefixes_are_kept(translator, sources):
    model, (ids, lengths) = translator("softmax", 6), pad_sequences(sources(3))
    prefixes, start = [(5, 4), (), (3, 3, 3)], start_translation(model, ids, lengths)
    for texts in (
        sample(model, start, 5, torch.Generator().manual_seed(0), prefixes=prefixes),
        greedy_search(model, start, 5, prefixes=prefixes),
    ):
        for text, prefix in zip(texts, prefixes, strict=True):
            assert text.tokens[: len(prefix)] == prefix


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_invalid_settings_are_refused(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}=.*expected"):
        Sampling(**arguments)
