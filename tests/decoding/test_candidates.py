"""Decoding restricted to candidates: the same as with all other logits at minus infinity, for each sentence alone."""

import math
from dataclasses import replace

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    DecodingStart,
    Ensemble,
    Sampling,
    beam_search,
    greedy_search,
    pad_sequences,
    sample,
    start_translation,
)
from structattn.decoding.fused import FusedDecoder, fuse
from structattn.operators.decoder_layers import can_run_decoder_layers

CANDIDATES = [(2, 3, 5, 6, 8), (2, 4, 7), (2, 3, 4, 5, 6, 7, 8)]


class Masked:
    """The definition: a model of one sentence whose other classes are impossible."""

    def __init__(self, model, candidates):
        self.model, self.kept = model, torch.tensor(candidates) - 2

    def step(self, tokens, state):
        logits, state = self.model.step(tokens, state)
        return torch.full_like(logits, -math.inf).index_copy(1, self.kept, logits[:, self.kept]), state


def starts(model, sources):
    """Return the start of a batch with candidates, and a model and a start for each sentence alone."""
    ids, lengths = pad_sequences(sources)
    start = start_translation(model, ids, lengths)
    alone = [
        (Masked(model, kept), start_translation(model, *pad_sequences([source])))
        for kept, source in zip(CANDIDATES, sources, strict=True)
    ]
    return DecodingStart(start.state, start.tokens, pad_sequences(CANDIDATES)[0]), alone


def texts(found):
    return [[each.tokens for each in of_line] if isinstance(of_line, list) else of_line.tokens for of_line in found]


@pytest.mark.parametrize("mechanism", ["softmax", "gaussian", "nondeterministic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search(translator, sources, mechanism, dtype, beam):
    model = translator(mechanism, symbols=6).to(dtype)
    start, alone = starts(model, sources(3))
    found = beam_search(model, start, 8, BeamSearch(beam), beam)
    expected = [beam_search(*each, 8, BeamSearch(beam), beam)[0] for each in alone]
    assert texts(found) == texts(expected)
    for of_line, by_definition in zip(found, expected, strict=True):
        scores = [[each.score for each in hypotheses] for hypotheses in (of_line, by_definition)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_greedy_search_and_prefixes(translator, sources, dtype):
    model = translator("softmax", symbols=6).to(dtype)
    start, alone = starts(model, sources(3))
    prefixes = [(5, 3), (), (8,)]
    expected = [greedy_search(*each, 8, [prefix])[0] for each, prefix in zip(alone, prefixes, strict=True)]
    assert texts(greedy_search(model, start, 8, prefixes)) == texts(expected)
    found = beam_search(model, start, 8, BeamSearch(2), prefixes=prefixes)
    assert [of_line[0].tokens[: len(prefix)] for of_line, prefix in zip(found, prefixes, strict=True)] == prefixes


def test_samples_hold_candidates_only(translator, sources):
    model = translator("softmax", symbols=6)
    start, _ = starts(model, sources(3))
    for _ in range(20):
        for found, kept in zip(sample(model, start, 8, torch.Generator(), Sampling(5.0)), CANDIDATES, strict=True):
            assert set(found.tokens) <= set(kept)


def test_ensembles(translator, sources):
    models, given = [translator("softmax", symbols=6, seed=seed) for seed in (0, 1)], sources(3)
    ensemble = Ensemble(models)
    ids, lengths = pad_sequences(given)
    candidates = pad_sequences(CANDIDATES)[0]
    plain = [start_translation(model, ids, lengths) for model in models]
    start = ensemble.start([replace(of_model, candidates=candidates.clone()) for of_model in plain])
    found = beam_search(ensemble, start, 8)
    for (best,), kept, source in zip(found, CANDIDATES, given, strict=True):
        alone = ensemble.start([start_translation(model, *pad_sequences([source])) for model in models])
        ((expected,),) = beam_search(Masked(ensemble, kept), alone, 8)
        assert best.tokens == expected.tokens


def test_starts_with_different_candidates_are_refused(translator, sources):
    model = translator("softmax", symbols=6)
    start, _ = starts(model, sources(3))
    others = (None, torch.cat([start.candidates, start.candidates[:, :1] * 0], 1), start.candidates.flip(0))
    for candidates in others:
        with pytest.raises(ValueError, match="different candidates; expected the same, or none"):
            Ensemble([model, model]).start([start, replace(start, candidates=candidates)])


def test_a_prefix_of_other_tokens_is_refused(translator, sources):
    model = translator("softmax", symbols=6)
    start, _ = starts(model, sources(3))
    with pytest.raises(ValueError, match="not among the candidates"):
        beam_search(model, start, 8, prefixes=[(4,), (), ()])


@pytest.mark.skipif(not can_run_decoder_layers("float32"), reason="the kernels were not built")
@torch.no_grad()
def test_the_fused_decoder_computes_the_logits_of_candidates_only(translator, sources):
    model = translator("softmax", symbols=6).float()
    start, _ = starts(model, sources(3))
    fused, fused_start = fuse(model, start)
    assert isinstance(fused, FusedDecoder)
    logits, _ = fused.step(start.tokens, fused_start.state)
    expected, _ = model.step(start.tokens, start.state)
    for row, of_model, kept in zip(logits, expected, CANDIDATES, strict=True):
        torch.testing.assert_close(row[: len(kept)], of_model[torch.tensor(kept) - 2], rtol=1e-5, atol=1e-5)
        assert (row[len(kept) :] == -math.inf).all()
