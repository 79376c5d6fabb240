"""Beam search against exhaustive search, greedy search and scores of whole sequences; independence of the batch."""

import itertools

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    GNMTPenalty,
    NoLengthPenalty,
    PerTokenPenalty,
    PowerPenalty,
    beam_search,
    greedy_search,
    pad_sequences,
    score_pairs,
    start_translation,
)

MECHANISMS = (
    "softmax",
    "superposition",
    "nondeterministic",
    "stack_pointer",
    "hard",
    "gaussian",
    "gaussian_across",
    "two_stream",
)
PENALTIES = (NoLengthPenalty(), PerTokenPenalty(), GNMTPenalty(0.6), PowerPenalty(0.6), PowerPenalty(1.5))
LONGEST, SYMBOLS = 5, 3
EVERYTHING = [
    (*text, 2) for length in range(LONGEST) for text in itertools.product(range(3, 3 + SYMBOLS), repeat=length)
]


def found(model, source, max_lengths, search=None, **more):
    ids, lengths = pad_sequences(source)
    return beam_search(model, start_translation(model, ids, lengths), max_lengths, search, **more)


def enumerated(model, source, penalty):
    """All finished texts by descending score, with an independent definition of the scores."""
    ids, lengths = pad_sequences([source] * len(EVERYTHING))
    log_probs = score_pairs(model, ids, EVERYTHING, lengths).log_probs
    sizes = torch.tensor([len(text) for text in EVERYTHING], dtype=torch.float64)
    divisor = {
        "NoLengthPenalty": torch.ones(len(sizes)),
        "PerTokenPenalty": sizes,
        "GNMTPenalty": ((5 + sizes) / 6) ** getattr(penalty, "alpha", 0),
        "PowerPenalty": sizes ** getattr(penalty, "exponent", 0),
    }[type(penalty).__name__]
    scores = log_probs / divisor
    order = scores.argsort(descending=True)
    return [EVERYTHING[index] for index in order], scores[order]


@pytest.mark.covering(1)
@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wide_beam_is_exhaustive(translator, sources, mechanism, penalty):
    model, source = translator(mechanism, SYMBOLS), sources(2, seed=1)
    for finishing, n_best in (("separate", 1), ("in_beam", 1), ("separate", 6)):
        search = BeamSearch(400, penalty, finishing=finishing)
        for of_one, ids in zip(found(model, source, LONGEST, search, n_best=n_best), source, strict=True):
            texts, scores = enumerated(model, ids, penalty)
            assert [hypothesis.tokens for hypothesis in of_one] == texts[:n_best]
            found_scores = torch.tensor([hypothesis.score for hypothesis in of_one], dtype=torch.float64)
            torch.testing.assert_close(found_scores, scores[:n_best], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("min_length", "limit"), [(0, 3), (1, 3), (2, 4), (3, 3), (2, 1)])
def test_a_wide_beam_is_exhaustive_among_the_lengths_that_are_allowed(translator, sources, min_length, limit):
    model, source = translator("softmax", SYMBOLS), sources(3, seed=1)
    search = BeamSearch(400, PerTokenPenalty(), min_length=min_length, force_eos=True)
    for of_one, ids in zip(found(model, source, limit, search, n_best=400), source, strict=True):
        texts, _ = enumerated(model, ids, PerTokenPenalty())
        least = min(min_length + 1, limit)
        assert [hypothesis.tokens for hypothesis in of_one] == [t for t in texts if least <= len(t) <= limit]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_n_best_are_sorted_and_scored_as_whole_sequences(translator, sources, mechanism):
    model, source = translator(mechanism, 5, seed=2), sources(4)
    for penalty in (NoLengthPenalty(), PerTokenPenalty()):
        for ids, hypotheses in zip(source, found(model, source, 7, BeamSearch(5, penalty), n_best=5), strict=True):
            assert len({hypothesis.tokens for hypothesis in hypotheses}) == 5
            for group in (True, False):
                scores = [hypothesis.score for hypothesis in hypotheses if hypothesis.finished == group]
                assert scores == sorted(scores, reverse=True)
            repeated, lengths = pad_sequences([ids] * 5)
            whole = score_pairs(model, repeated, [h.tokens for h in hypotheses], lengths).log_probs
            for hypothesis, log_probability in zip(hypotheses, whole.tolist(), strict=True):
                assert hypothesis.log_probability == pytest.approx(log_probability, rel=1e-9)
                divisor = len(hypothesis.tokens) if penalty == PerTokenPenalty() else 1
                assert hypothesis.score == pytest.approx(log_probability / divisor, rel=1e-9)


@pytest.mark.covering(1)
@pytest.mark.parametrize("finishing", ["separate", "in_beam"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_beam_of_one_is_greedy(translator, sources, mechanism, finishing):
    source, ends = sources(7, seed=5), []
    ids, lengths = pad_sequences(source)
    for seed in (0, 1, 3):
        model = translator(mechanism, 6, seed)
        expected = greedy_search(model, start_translation(model, ids, lengths), 9)
        for (single,), same in zip(found(model, source, 9, BeamSearch(1, finishing=finishing)), expected, strict=True):
            assert single.tokens == same.tokens
            assert single.log_probability == pytest.approx(same.log_probability, rel=1e-9)
            ends.append(single.finished)
    assert set(ends) == {True, False}


@pytest.mark.quick("softmax", "nondeterministic", "hard", "two_stream")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_results_do_not_depend_on_the_batch(translator, sources, mechanism):
    source, seen = sources(7, seed=5), set()
    limits = [2 + 2 * len(ids) for ids in source]
    search = BeamSearch(3, PerTokenPenalty(), finishing="in_beam")

    def in_order(model, order, size):
        results = {}
        for begin in range(0, 7, size):
            chosen = order[begin : begin + size]
            batch = found(model, [source[i] for i in chosen], [limits[i] for i in chosen], search, n_best=2)
            results.update(zip(chosen, batch, strict=True))
        return [results[i] for i in range(7)]

    for seed in (0, 1, 3):
        model = translator(mechanism, 6, seed)
        alone = in_order(model, range(7), 1)
        seen |= {hypothesis.tokens for hypotheses in alone for hypothesis in hypotheses}
        for order, size in ((range(7), 3), ((3, 6, 0, 2, 5, 1, 4), 7), ((6, 5, 4, 3, 2, 1, 0), 3)):
            for expected, result in zip(alone, in_order(model, order, size), strict=True):
                assert [hypothesis.tokens for hypothesis in result] == [hypothesis.tokens for hypothesis in expected]
                for a, b in zip(result, expected, strict=True):
                    assert a.score == pytest.approx(b.score, rel=1e-5)
    assert len(seen) > 6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_float32_finds_the_same_hypotheses(translator, sources, mechanism):
    model, source = translator(mechanism, 4, seed=6), sources(3)
    double = found(model, source, 6, BeamSearch(3))
    single = found(model.float(), source, 6, BeamSearch(3))
    for (a,), (b,) in zip(double, single, strict=True):
        assert a.tokens == b.tokens
        assert a.score == pytest.approx(b.score, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_forced_prefixes_are_kept_and_the_rest_is_searched(translator, sources, mechanism):
    model, source = translator(mechanism, SYMBOLS), sources(3)
    prefixes = [(5, 3), (), (4, 4, 4)]
    results = found(model, source, LONGEST, BeamSearch(400, PerTokenPenalty()), n_best=3, prefixes=prefixes)
    for ids, prefix, hypotheses in zip(source, prefixes, results, strict=True):
        texts, _ = enumerated(model, ids, PerTokenPenalty())
        begun = [text for text in texts if text[: len(prefix)] == prefix]
        assert [hypothesis.tokens for hypothesis in hypotheses] == begun[:3]


def test_a_prefix_goes_before_the_rules_of_lengths(translator, sources):
    search = BeamSearch(2, min_length=1, force_eos=True)
    prefixes = [(3, 4), (3, 4), ()]
    results = found(translator("softmax"), sources(3), [2, 3, 1], search, prefixes=prefixes)
    assert [hypotheses[0].tokens for hypotheses in results] == [(3, 4), (3, 4, 2), (2,)]


def test_a_prefix_may_be_the_whole_text(translator, sources):
    (hypotheses,) = found(translator("softmax"), sources(1), 2, prefixes=[(3, 4)])
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(3, 4)]
    assert not hypotheses[0].finished


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_empty_sources(translator, mechanism):
    model = translator(mechanism, 4)
    beside = found(model, [[], [5, 6, 2], [2]], 4)
    for source, (hypothesis,) in (([], beside[0]), ([2], beside[2])):
        ((alone,),) = found(model, [source], 4)
        assert hypothesis.tokens == alone.tokens
        assert hypothesis.score == pytest.approx(alone.score, rel=1e-9)


def test_no_sentences(translator):
    model = translator("softmax")
    nothing = torch.zeros(0, 3, dtype=torch.int64)
    assert beam_search(model, start_translation(model, nothing), 5) == []
    assert greedy_search(model, start_translation(model, nothing), 5) == []


@pytest.mark.parametrize("mechanism", ["softmax", "two_stream"])
def test_maximum_lengths_of_0_and_1(translator, sources, mechanism):
    model, source = translator(mechanism, SYMBOLS), sources(3)
    results = found(model, source, [0, 1, 1], BeamSearch(4), n_best=4)
    assert [(h.tokens, h.log_probability, h.finished) for h in results[0]] == [((), 0.0, False)]
    for hypotheses in results[1:]:
        assert hypotheses[0].tokens == (2,)  # finished before unfinished, however likely
        assert {h.tokens for h in hypotheses[1:]} == {(3,), (4,), (5,)}
        assert sum(torch.tensor([h.log_probability for h in hypotheses]).exp()) == pytest.approx(1)
    ids, lengths = pad_sequences(source)
    cut = greedy_search(model, start_translation(model, ids, lengths), [0, 1, 1])
    assert [len(hypothesis.tokens) for hypothesis in cut] == [0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_lengths": -1}, "max_lengths holds -1"),
        ({"max_lengths": [1, 2, 3]}, "expected one for each"),
        ({"n_best": 5}, "n_best=5; expected 1 to beam_size=4"),
        ({"n_best": 0}, "n_best=0"),
        ({"prefixes": [(3,)]}, "1 prefixes for 2"),
        ({"prefixes": [(3,), (2,)]}, r"prefix 1 is \[2\]"),
        ({"prefixes": [(), (3, 3, 3, 3)]}, "prefix 1 has 4 tokens; the maximum length of its text is 3"),
    ],
)
def test_invalid_arguments_are_refused(translator, sources, arguments, message):
    with pytest.raises(ValueError, match=message):
        found(translator("softmax"), sources(2), **({"max_lengths": 3} | arguments))


@pytest.mark.parametrize(
    "make",
    [
        lambda: BeamSearch(0),
        lambda: BeamSearch(min_length=-1),
        lambda: BeamSearch(stopping="soon"),
        lambda: BeamSearch(finishing="away"),
        lambda: GNMTPenalty(-0.1),
        lambda: PowerPenalty(float("nan")),
    ],
)
def test_invalid_settings_are_refused(make):
    with pytest.raises(ValueError, match="expected"):
        make()
