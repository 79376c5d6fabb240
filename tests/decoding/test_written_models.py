"""Decoding of models whose predictions are written down: ends, prohibitions, ties, and what the model is asked for."""

import math

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    PerToken,
    Unnormalized,
    beam_search,
    dusell_chiang_2024,
    fairseq,
    greedy,
    sample,
    you_2020,
)

INF = math.inf


def logs(*probabilities):
    return [math.log(p) if p else -INF for p in probabilities]


def test_without_an_end_texts_are_cut_and_reported(written):
    model = written(lambda sentence, step, token: [-5.0, 1.0, 0.5])
    (cut,) = greedy(model, model.start(), 6)
    assert (cut.tokens, cut.text, cut.finished) == ((3,) * 6, (3,) * 6, False)
    ((cut,),) = beam_search(model, model.start(), 6, BeamSearch(2))
    assert (cut.tokens, cut.finished) == ((3,) * 6, False)


@pytest.mark.parametrize("finished", ["apart", "compete"])
def test_a_finished_text_goes_before_a_likelier_cut_one(written, finished):
    model = written(lambda sentence, step, token: logs(0.3, 0.7))
    (hypotheses,) = beam_search(model, model.start(), 3, BeamSearch(2, finished=finished), n_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (3, 2) if finished == "apart" else (3, 3, 3)]


def test_what_is_forbidden_is_never_chosen(written):
    model = written(lambda sentence, step, token: [0.0, -INF, 1.0 if step < 2 else -INF])
    (hypotheses,) = beam_search(model, model.start(), 5, BeamSearch(4), n_best=4)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(4, 4, 2), (2,), (4, 2)]
    for seed in range(5):
        (drawn,) = sample(model, model.start(), 5, torch.Generator().manual_seed(seed))
        assert 3 not in drawn.tokens
        assert drawn.finished


def test_a_dead_end(written):
    model = written(lambda sentence, step, token: [-INF, 0.0] if step < 2 else [-INF, -INF])
    assert beam_search(model, model.start(), 5) == [[]]
    for (cut,) in (greedy(model, model.start(), 5), sample(model, model.start(), 5, torch.Generator())):
        assert (cut.tokens, cut.log_probability, cut.finished) == ((3, 3), 0.0, False)


def test_an_impossible_prefix(written):
    model = written(lambda sentence, step, token: [0.0, 1.0, -INF])
    assert beam_search(model, model.start(), 5, prefixes=[(4,)]) == [[]]
    (forced,) = greedy(model, model.start(), 5, prefixes=[(4,)])
    assert forced.tokens[0] == 4
    assert forced.log_probability == -INF


def test_nan_is_refused(written):
    model = written(lambda sentence, step, token: [0.0, math.nan, 1.0])
    for decode in (greedy, beam_search, lambda *a: sample(*a, torch.Generator())):
        with pytest.raises(ValueError, match="NaN"):
            decode(model, model.start(), 3)


def test_ties_go_to_the_lower_token_and_the_earlier_hypothesis(written):
    model = written(lambda sentence, step, token: [-1.0, 0.0, 0.0, 0.0] if step < 2 else [9.0, 0.0, 0.0, 0.0])
    (hypotheses,) = beam_search(model, model.start(), 5, BeamSearch(4), n_best=4)
    assert [hypothesis.tokens for hypothesis in hypotheses[1:]] == [(3, 3, 2), (3, 4, 2), (3, 5, 2)]
    assert greedy(model, model.start(), 5)[0].tokens == (3, 3, 2)


def test_sentences_that_are_done_leave_the_batch(written):
    ends = {0: 1, 1: 4, 2: 2}
    model = written(lambda sentence, step, token: [20.0 if step >= ends[sentence] else -20.0, 0.0, 0.1])
    texts = greedy(model, model.start(3), 9)
    assert [len(hypothesis.text) for hypothesis in texts] == [1, 4, 2]
    assert model.rows == [3, 3, 2, 1, 1]
    model.rows.clear()
    texts = beam_search(model, model.start(3), 9, BeamSearch(2))
    assert [len(hypotheses[0].text) for hypotheses in texts] == [1, 4, 2]
    assert model.rows == [3, 6, 4, 2, 2]


def test_states_are_copied_only_where_rows_move(written):
    model = written(lambda sentence, step, token: [-20.0, 0.0, -4.0 if step else -20.0])
    greedy(model, model.start(3), 5)
    assert model.selected == 0
    beam_search(model, model.start(3), 5, BeamSearch(1))
    assert model.selected == 0


def test_one_row_for_each_sentence_while_a_prefix_is_forced(written):
    model = written(lambda sentence, step, token: [-2.0, 0.0, 0.1])
    beam_search(model, model.start(2), 5, BeamSearch(3), prefixes=[(3, 4, 4), (4, 4)])
    assert model.rows == [2, 2, 2, 4, 6]


# p(<eos>) at the first step 0.4, then 0.9 and 0.99: by the mean, the longer the better; in all, the shorter.
def improving(sentence, step, token):
    return logs(*((0.4, 0.6) if step == 0 else (0.1, 0.9) if step < 3 else (0.99, 0.01)))


def test_exact_goes_on_where_the_first_end_is_not_the_best(written):
    model = written(improving)
    for search in (BeamSearch(2, PerToken()), BeamSearch(2), dusell_chiang_2024(2)):
        ((best,),) = beam_search(model, model.start(), 8, search)
        assert best.tokens == (3, 3, 3, 2)
        assert best.log_probability == pytest.approx(math.log(0.6 * 0.81 * 0.99))
    ((first,),) = beam_search(model, model.start(), 8, fairseq(2))
    assert first.tokens == (2,)


def test_exact_stops_as_soon_as_nothing_better_can_come(written):
    model = written(lambda sentence, step, token: logs(0.2, 0.7, 0.1))
    for n_best, steps in ((1, 5), (2, 6)):
        model.rows.clear()
        (hypotheses,) = beam_search(model, model.start(), 200, BeamSearch(2), n_best=n_best)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (3, 2)][:n_best]
        assert len(model.rows) == steps  # 0.7^5 < 0.2 and 0.7^6 < 0.14


def test_count_stops_when_the_beam_is_full(written):
    model = written(improving)
    (hypotheses,) = beam_search(model, model.start(), 8, fairseq(1), n_best=1)
    assert hypotheses[0].tokens == (3, 3, 3, 2)
    model.rows.clear()
    (hypotheses,) = beam_search(model, model.start(), 8, fairseq(2), n_best=2)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(2,), (3, 2)]
    assert len(model.rows) == 2


def test_best_stops_when_the_best_is_finished(written):
    model = written(lambda sentence, step, token: logs(*((0.5, 0.3, 0.2) if step == 0 else (0.98, 0.01, 0.01))))
    ((first,),) = beam_search(model, model.start(), 8, dusell_chiang_2024())
    assert first.tokens == (2,)
    assert model.rows == [1]
    ((exact,),) = beam_search(model, model.start(), 8, BeamSearch(4, PerToken()))
    assert exact.tokens == (3, 2)


def test_finished_hypotheses_take_places_only_where_they_compete(written):
    model = written(lambda sentence, step, token: logs(0.4, 0.35, 0.25))
    for finished, rows in (("apart", [1, 2, 2]), ("compete", [1, 1])):
        model.rows.clear()
        beam_search(model, model.start(), 3, BeamSearch(2, PerToken(), finished=finished), n_best=2)
        assert model.rows == rows


def test_the_winner_of_you_2020_is_the_likeliest_that_remains(written):
    model = written(improving)
    by_rule = BeamSearch(3, you_2020().rule, finished="compete")
    rule, likeliest = (beam_search(model, model.start(), 8, s, n_best=3)[0] for s in (by_rule, you_2020(3)))
    assert {h.tokens for h in rule} == {h.tokens for h in likeliest}
    scores = [hypothesis.score for hypothesis in likeliest]
    assert scores == sorted((h.log_probability for h in rule), reverse=True)


def test_with_a_ranking_the_search_goes_on_until_the_beam_can_no_longer_change(written):
    first, second = [0.3, 0.7] + [0] * 6, [0.3, 0.125] + [0.575 / 6] * 6
    model = written(lambda sentence, step, token: logs(*(first, second, [0.5, 0.5] + [0] * 6)[step]))
    search = BeamSearch(3, PerToken(), finished="compete", ranking=Unnormalized())
    ((winner,),) = beam_search(model, model.start(), 3, search)
    assert winner.tokens == (3, 2)  # by then, (2,) is likelier but was pushed out
    (by_rule,) = beam_search(model, model.start(), 3, BeamSearch(3, PerToken(), finished="compete"))
    assert by_rule[0].tokens == (3, 2)
    assert len(model.rows) == 3 + 2  # which the winner under the rule need not wait for
