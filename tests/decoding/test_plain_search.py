"""Narrow beams against a beam search for one sentence, written down as the definition has it, without any batch."""

import itertools

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    Gnmt,
    LengthPower,
    PerToken,
    beam_search,
    dusell_chiang_2024,
    fairseq,
    padded,
    translation,
    you_2020,
)

SEARCHES = [
    BeamSearch(2),
    BeamSearch(3, PerToken()),
    BeamSearch(3, Gnmt(), finished="compete"),
    BeamSearch(4, LengthPower(0.5), stop="best"),
    BeamSearch(2, PerToken(), finished="compete", stop="count"),
    dusell_chiang_2024(3),
    you_2020(4),
    fairseq(3),
]


def score(search, text, rule=None):
    """Of (log p, tokens)."""
    length = torch.tensor(float(max(1, len(text[1]))), dtype=torch.float64)
    return text[0] / (rule or search.rule).divisor(length).item()


def plain_search(model, source, limit, search, n_best):
    def best(texts, rule=None):
        return sorted(texts, key=lambda text: -score(search, text, rule))

    def continued(text):
        logits = model(torch.tensor([source]), torch.tensor([[1, *text[1]]]))[0, -1]
        return [(text[0] + x, (*text[1], c + 2)) for c, x in enumerate(logits.log_softmax(-1).tolist())]

    def is_done(going_on, finished):
        if search.stop == "count":
            return len(finished) == search.beam
        if search.stop == "best":
            return bool(finished) and score(search, finished[0]) >= score(search, going_on[0])
        wanted = search.beam if search.ranking else n_best
        bound = going_on[0][0] / search.rule.divisor(torch.tensor(float(limit), dtype=torch.float64)).item()
        return len(finished) >= wanted and score(search, finished[wanted - 1]) >= bound

    going_on, finished = [(0.0, ())], []
    for _ in range(limit):
        if not going_on or is_done(going_on, finished):
            break
        found = best(itertools.chain.from_iterable(map(continued, going_on)))
        if search.finished == "compete":
            beam = best(finished + found[: search.beam])[: search.beam]
            finished = [text for text in beam if text[1][-1] == 2]
            going_on = [text for text in beam if text[1][-1] != 2]
        else:
            finished = best(finished + [text for text in found[: search.beam] if text[1][-1] == 2])[: search.beam]
            going_on = [text for text in found if text[1][-1] != 2][: search.beam]
    return (best(finished, search.ranking) + best(going_on, search.ranking))[:n_best]


@torch.no_grad()
@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: f"{search.finished}-{search.stop}-{search.rule}")
@pytest.mark.parametrize("mechanism", ["softmax", "superposition"])
def test_narrow_beams_find_what_the_definition_finds(translator, sources, mechanism, search):
    source = sources(2, seed=8)
    ids, lengths = padded(source)
    limits = [7, 5]
    for seed, n_best in ((0, 1), (1, search.beam), (3, 2)):
        model = translator(mechanism, 4, seed)
        results = beam_search(model, translation(model, ids, lengths), limits, search, n_best)
        for of_one, limit, hypotheses in zip(source, limits, results, strict=True):
            expected = plain_search(model, of_one, limit, search, n_best)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for _, tokens in expected]
            found = [hypothesis.log_probability for hypothesis in hypotheses]
            assert found == pytest.approx([log_probability for log_probability, _ in expected], rel=1e-9)
