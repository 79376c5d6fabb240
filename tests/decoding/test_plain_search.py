"""Narrow beams against a plain implementation of beam search for one sentence."""

import itertools

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    GNMTPenalty,
    PerTokenPenalty,
    PowerPenalty,
    beam_search,
    dusell_chiang_2024,
    fairseq,
    pad_sequences,
    start_translation,
    vaswani_2017,
    you_2020,
)

SEARCHES = [
    BeamSearch(2),
    BeamSearch(3, PerTokenPenalty()),
    BeamSearch(3, GNMTPenalty(), finishing="in_beam"),
    BeamSearch(4, PowerPenalty(0.5), stopping="best_finished"),
    BeamSearch(2, PerTokenPenalty(), finishing="in_beam", stopping="all_finished"),
    dusell_chiang_2024(3),
    you_2020(4),
    fairseq(3),
    vaswani_2017(3),
]


def score(search, text, penalty=None):
    """Return the score of (log p, tokens)."""
    length = torch.tensor(float(max(1, len(text[1]))), dtype=torch.float64)
    return text[0] / (penalty or search.length_penalty).divisor(length).item()


def plain_search(model, source, limit, search, n_best):
    def best(texts, penalty=None):
        return sorted(texts, key=lambda text: -score(search, text, penalty))

    def continued(text):
        logits = model(torch.tensor([source]), torch.tensor([[1, *text[1]]]))[0, -1]
        return [(text[0] + x, (*text[1], c + 2)) for c, x in enumerate(logits.log_softmax(-1).tolist())]

    def is_done(going_on, finished):
        if search.stopping == "all_finished":
            return len(finished) == search.beam_size
        if search.stopping == "best_finished":
            return bool(finished) and score(search, finished[0]) >= score(search, going_on[0])
        wanted = search.beam_size if search.final_penalty else n_best
        bound = going_on[0][0] / search.length_penalty.divisor(torch.tensor(float(limit), dtype=torch.float64)).item()
        return len(finished) >= wanted and score(search, finished[wanted - 1]) >= bound

    going_on, finished = [(0.0, ())], []
    for _ in range(limit):
        if not going_on or is_done(going_on, finished):
            break
        found = best(itertools.chain.from_iterable(map(continued, going_on)))
        if search.finishing == "in_beam":
            beam = best(finished + found[: search.beam_size])[: search.beam_size]
            finished = [text for text in beam if text[1][-1] == 2]
            going_on = [text for text in beam if text[1][-1] != 2]
        else:
            finished = best(finished + [text for text in found[: search.beam_size] if text[1][-1] == 2])[
                : search.beam_size
            ]
            going_on = [text for text in found if text[1][-1] != 2][: search.beam_size]
    return (best(finished, search.final_penalty) + best(going_on, search.final_penalty))[:n_best]


@torch.no_grad()
@pytest.mark.parametrize(
    "search", SEARCHES, ids=lambda search: f"{search.finishing}-{search.stopping}-{search.length_penalty}"
)
@pytest.mark.parametrize("mechanism", ["softmax", "superposition"])
def test_narrow_beams_match_the_plain_implementation(translator, sources, mechanism, search):
    source = sources(2, seed=8)
    ids, lengths = pad_sequences(source)
    limits = [7, 5]
    for seed, n_best in ((0, 1), (1, search.beam_size), (3, 2)):
        model = translator(mechanism, 4, seed)
        results = beam_search(model, start_translation(model, ids, lengths), limits, search, n_best)
        for of_one, limit, hypotheses in zip(source, limits, results, strict=True):
            expected = plain_search(model, of_one, limit, search, n_best)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for _, tokens in expected]
            found = [hypothesis.log_probability for hypothesis in hypotheses]
            assert found == pytest.approx([log_probability for log_probability, _ in expected], rel=1e-9)
