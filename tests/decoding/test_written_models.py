"""Decoding with scripted models: finishing, forbidden tokens, ties, and the steps that the model is called for."""

import math
from functools import partial

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    GNMTPenalty,
    NoLengthPenalty,
    PerTokenPenalty,
    PowerPenalty,
    beam_search,
    dusell_chiang_2024,
    fairseq,
    gnmt,
    greedy_search,
    sample,
    vaswani_2017,
    you_2020,
)

INF = math.inf


def logs(*probabilities):
    return [math.log(p) if p else -INF for p in probabilities]


def test_texts_without_eos_are_cut_and_unfinished(written):
    model = written(lambda sentence, step, token: [-5.0, 1.0, 0.5])
    (cut,) = greedy_search(model, model.start(), 6)
    assert (cut.tokens, cut.text, cut.finished) == ((3,) * 6, (3,) * 6, False)
    ((cut,),) = beam_search(model, model.start(), 6, BeamSearch(2))
    assert (cut.tokens, cut.finished) == ((3,) * 6, False)


@pytest.mark.parametrize("finishing", ["separate", "in_beam"])
def test_a_finished_text_precedes_a_more_probable_unfinished_one(written, finishing):
    model = written(lambda sentence, step, token: logs(0.3, 0.7))
    (hypotheses,) = beam_search(model, model.start(), 3, BeamSearch(2, finishing=finishing), n_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (3, 2) if finishing == "separate" else (3, 3, 3)]


def test_forbidden_tokens_are_never_chosen(written):
    model = written(lambda sentence, step, token: [0.0, -INF, 1.0 if step < 2 else -INF])
    (hypotheses,) = beam_search(model, model.start(), 5, BeamSearch(4), n_best=4)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(4, 4, 2), (2,), (4, 2)]
    for seed in range(5):
        (drawn,) = sample(model, model.start(), 5, torch.Generator().manual_seed(seed))
        assert 3 not in drawn.tokens
        assert drawn.finished


def test_all_tokens_forbidden(written):
    model = written(lambda sentence, step, token: [-INF, 0.0] if step < 2 else [-INF, -INF])
    assert beam_search(model, model.start(), 5) == [[]]
    for (cut,) in (greedy_search(model, model.start(), 5), sample(model, model.start(), 5, torch.Generator())):
        assert (cut.tokens, cut.log_probability, cut.finished) == ((3, 3), 0.0, False)


def test_an_impossible_prefix(written):
    model = written(lambda sentence, step, token: [0.0, 1.0, -INF])
    assert beam_search(model, model.start(), 5, prefixes=[(4,)]) == [[]]
    (forced,) = greedy_search(model, model.start(), 5, prefixes=[(4,)])
    assert forced.tokens[0] == 4
    assert forced.log_probability == -INF


@pytest.mark.parametrize("logit", [math.nan, math.inf])
def test_nan_and_inf_are_refused(written, logit):
    model = written(lambda sentence, step, token: [0.0, logit, 1.0])
    for decode in (greedy_search, beam_search, lambda *a: sample(*a, torch.Generator())):
        with pytest.raises(ValueError, match="the model returned NaN or inf logits; expected finite numbers or -inf"):
            decode(model, model.start(), 3)


def test_a_prefix_outside_the_vocabulary_is_refused(written):
    model = written(lambda sentence, step, token: [0.0, 1.0, 2.0])  # ids 2 to 4
    for decode in (greedy_search, beam_search, partial(sample, generator=torch.Generator())):
        with pytest.raises(ValueError, match="a prefix has token 5; the vocabulary has 5, expected one below that"):
            decode(model, model.start(2), 3, prefixes=[(4, 5), (4,)])


def test_ties_go_to_the_lower_token_and_the_earlier_hypothesis(written):
    model = written(lambda sentence, step, token: [-1.0, 0.0, 0.0, 0.0] if step < 2 else [9.0, 0.0, 0.0, 0.0])
    (hypotheses,) = beam_search(model, model.start(), 5, BeamSearch(4), n_best=4)
    assert [hypothesis.tokens for hypothesis in hypotheses[1:]] == [(3, 3, 2), (3, 4, 2), (3, 5, 2)]
    assert greedy_search(model, model.start(), 5)[0].tokens == (3, 3, 2)


def test_finished_sentences_leave_the_batch(written):
    ends = {0: 1, 1: 4, 2: 2}
    model = written(lambda sentence, step, token: [20.0 if step >= ends[sentence] else -20.0, 0.0, 0.1])
    texts = greedy_search(model, model.start(3), 9)
    assert [len(hypothesis.text) for hypothesis in texts] == [1, 4, 2]
    assert model.rows == [3, 3, 2, 1, 1]
    model.rows.clear()
    texts = beam_search(model, model.start(3), 9, BeamSearch(2))
    assert [len(hypotheses[0].text) for hypotheses in texts] == [1, 4, 2]
    assert model.rows == [3, 6, 4, 2, 2]


def test_states_are_copied_only_if_rows_change(written):
    model = written(lambda sentence, step, token: [-20.0, 0.0, -4.0 if step else -20.0])
    greedy_search(model, model.start(3), 5)
    assert model.selected == 0
    beam_search(model, model.start(3), 5, BeamSearch(1))
    assert model.selected == 0


def test_a_forced_prefix_needs_one_row_for_each_sentence(written):
    model = written(lambda sentence, step, token: [-2.0, 0.0, 0.1])
    beam_search(model, model.start(2), 5, BeamSearch(3), prefixes=[(3, 4, 4), (4, 4)])
    assert model.rows == [2, 2, 2, 4, 6]


# p(<eos>) is 0.4, then 0.1 twice, then 0.99: the mean over tokens prefers longer texts, the sum shorter ones.
def improving(sentence, step, token):
    return logs(*((0.4, 0.6) if step == 0 else (0.1, 0.9) if step < 3 else (0.99, 0.01)))


def test_exact_continues_while_a_better_text_is_possible(written):
    model = written(improving)
    for search in (BeamSearch(2, PerTokenPenalty()), BeamSearch(2), dusell_chiang_2024(2)):
        ((best,),) = beam_search(model, model.start(), 8, search)
        assert best.tokens == (3, 3, 3, 2)
        assert best.log_probability == pytest.approx(math.log(0.6 * 0.81 * 0.99))
    ((first,),) = beam_search(model, model.start(), 8, BeamSearch(2, PerTokenPenalty(), stopping="all_finished"))
    assert first.tokens == (2,)


def test_exact_stops_as_soon_as_no_better_text_is_possible(written):
    model = written(lambda sentence, step, token: logs(0.2, 0.7, 0.1))
    for n_best, steps in ((1, 5), (2, 6)):
        model.rows.clear()
        (hypotheses,) = beam_search(model, model.start(), 200, BeamSearch(2), n_best=n_best)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (3, 2)][:n_best]
        assert len(model.rows) == steps  # 0.7^5 < 0.2 and 0.7^6 < 0.14


def test_all_finished_stops_when_the_beam_is_full(written):
    model = written(improving)
    (hypotheses,) = beam_search(model, model.start(), 8, fairseq(1), n_best=1)
    assert hypotheses[0].tokens == (3, 3, 3, 2)
    model.rows.clear()
    (hypotheses,) = beam_search(model, model.start(), 8, BeamSearch(2, stopping="all_finished"), n_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (3, 2)]
    assert len(model.rows) == 2


def test_fairseq_finds_no_empty_text(written):
    model = written(lambda sentence, step, token: logs(0.8, 0.2) if step == 0 else logs(0.6, 0.4))
    (hypotheses,) = beam_search(model, model.start(), 8, fairseq(2), n_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(3, 3, 2), (3, 2)]
    assert hypotheses[1].log_probability == pytest.approx(math.log(0.2 * 0.6))  # as the model gives it


def test_fairseq_ends_texts_at_the_limit_so_that_they_can_win(written):
    steps = (0, 0.6, 0.4), (0.45, 0.5, 0.05), (0.05, 0.94, 0.01)
    model = written(lambda sentence, step, token: logs(*steps[min(step, 2)]))
    ((ended,),) = beam_search(model, model.start(), 8, fairseq(2))
    assert (ended.tokens, ended.finished) == ((3,) * 7 + (2,), True)
    assert ended.score == pytest.approx(math.log(0.6 * 0.5 * 0.94**5 * 0.05) / 8)  # more than log(0.6 * 0.45) / 2
    search = BeamSearch(2, PerTokenPenalty(), stopping="all_finished")
    (hypotheses,) = beam_search(model, model.start(), 8, search, n_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(3, 2), (3,) * 8]


def test_best_finished_stops_when_the_best_is_finished(written):
    model = written(lambda sentence, step, token: logs(*((0.5, 0.3, 0.2) if step == 0 else (0.98, 0.01, 0.01))))
    ((first,),) = beam_search(model, model.start(), 8, dusell_chiang_2024())
    assert first.tokens == (2,)
    assert model.rows == [1]
    ((exact,),) = beam_search(model, model.start(), 8, BeamSearch(4, PerTokenPenalty()))
    assert exact.tokens == (3, 2)


def test_finished_hypotheses_occupy_the_beam_only_if_in_beam(written):
    model = written(lambda sentence, step, token: logs(0.4, 0.35, 0.25))
    for finishing, rows in (("separate", [1, 2, 2]), ("in_beam", [1, 1])):
        model.rows.clear()
        beam_search(model, model.start(), 3, BeamSearch(2, PerTokenPenalty(), finishing=finishing), n_best=2)
        assert model.rows == rows


def test_you_2020_returns_the_most_probable_remaining_hypothesis(written):
    model = written(improving)
    by_rule = BeamSearch(3, you_2020().length_penalty, finishing="in_beam")
    rule, likeliest = (beam_search(model, model.start(), 8, s, n_best=3)[0] for s in (by_rule, you_2020(3)))
    assert {h.tokens for h in rule} == {h.tokens for h in likeliest}
    scores = [hypothesis.score for hypothesis in likeliest]
    assert scores == sorted((h.log_probability for h in rule), reverse=True)


@pytest.mark.parametrize(("preset", "alpha", "length"), [(gnmt, 0.2, 1), (vaswani_2017, 0.6, 8)])
def test_presets_of_gnmt_and_the_transformer_divide_by_their_length_penalty(written, preset, alpha, length):
    def first_last_or_never(sentence, step, token):
        return logs(0.5, 0.5) if step == 0 else logs(0.8, 0.2) if step == 7 else logs(0, 1)

    model = written(first_last_or_never)
    ((best, other),) = beam_search(model, model.start(), 8, preset(), n_best=2)
    scores = {1: math.log(0.5), 8: math.log(0.4) / ((5 + 8) ** alpha / (5 + 1) ** alpha)}  # log p / lp(Y)
    assert (len(best.tokens), len(other.tokens)) == (length, 9 - length)
    assert best.score == pytest.approx(scores[length])
    assert other.score == pytest.approx(scores[9 - length])
    assert preset().beam_size == 4


def test_presets_have_the_published_settings():
    in_beam, no_penalty = {"finishing": "in_beam"}, NoLengthPenalty()
    assert fairseq() == BeamSearch(5, PowerPenalty(1.0), stopping="all_finished", min_length=1, force_eos=True)
    assert you_2020() == BeamSearch(4, GNMTPenalty(0.6), **in_beam, final_penalty=no_penalty)
    assert dusell_chiang_2024() == BeamSearch(4, PerTokenPenalty(), **in_beam, stopping="best_finished")


def test_with_a_final_penalty_the_search_continues_until_the_beam_cannot_change(written):
    first, second = [0.3, 0.7] + [0] * 6, [0.3, 0.125] + [0.575 / 6] * 6
    model = written(lambda sentence, step, token: logs(*(first, second, [0.5, 0.5] + [0] * 6)[step]))
    search = BeamSearch(3, PerTokenPenalty(), finishing="in_beam", final_penalty=NoLengthPenalty())
    ((winner,),) = beam_search(model, model.start(), 3, search)
    assert winner.tokens == (3, 2)  # (2,) is more probable but has been displaced
    (by_rule,) = beam_search(model, model.start(), 3, BeamSearch(3, PerTokenPenalty(), finishing="in_beam"))
    assert by_rule[0].tokens == (3, 2)
    assert len(model.rows) == 3 + 2  # under the length penalty alone, two steps are enough
