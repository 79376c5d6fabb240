"""The fused decoder: the logits of the model's own step, for all placements of norms, and only where it applies."""

import pytest
import torch

from structattn.building.embeddings import VocabularySpec
from structattn.building.models import build_encoder_decoder
from structattn.decoding import BeamSearch, beam_search, pad_sequences, start_translation
from structattn.decoding.fused import FusedDecoder, fuse
from structattn.operators.decoder_layers import has_decoder_layers
from structattn.settings.encoder_decoder import EncoderDecoderSettings

needs_kernel = pytest.mark.skipif(not has_decoder_layers(), reason="the kernels were not built")
SOURCES = [(5, 4, 9, 2), (7, 2), (3, 8, 8, 8, 6, 2)]


def built(layers="2", decoder=None, **changes):
    torch.manual_seed(0)
    settings = {"kind": "encoder_decoder", "d_model": 20, "d_ff": 37, "num_heads": 4, "layers": layers} | changes
    settings = {name: value for name, value in settings.items() if name != "layers"}
    settings |= {"encoder": {"layers": 2}, "decoder": decoder or {"layers": 2}}
    model = build_encoder_decoder(
        EncoderDecoderSettings.model_validate(settings), VocabularySpec(50), VocabularySpec(50)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def started(model, padded=True):
    ids, lengths = pad_sequences(SOURCES if padded else [SOURCES[0]] * 3)
    return start_translation(model, ids, lengths)


@needs_kernel
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "bias": False},
        {"d_model": 72, "num_heads": 1, "d_ff": 130},
        {"d_model": 7, "num_heads": 7, "d_ff": 1, "positions": "none"},
    ],
    ids=str,
)
@torch.no_grad()
def test_logits_are_those_of_the_model(changes, padded):
    model = built(**changes)
    start = started(model, padded)
    fused, fused_start = fuse(model, start)
    assert isinstance(fused, FusedDecoder)
    state, fused_state, rows = start.state, fused_start.state, torch.arange(3)
    generator = torch.Generator().manual_seed(0)
    for step in range(12):
        tokens = torch.randint(3, 50, (len(rows),), generator=generator)
        before = fused_state
        expected, state = model.step(tokens, state)
        logits, fused_state = fused.step(tokens, fused_state)
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
        again, _ = fused.step(tokens, before)
        assert torch.equal(again, logits), "a state is a value"
        rows = torch.randint(len(rows), (3 + 5 * step,), generator=generator)
        state, fused_state = state.select(rows), fused_state.select(rows)


@needs_kernel
@torch.no_grad()
def test_threads_change_nothing(monkeypatch):
    model = built()
    fused, start = fuse(model, started(model))
    state = start.state.select(torch.arange(3).repeat(30))
    tokens = torch.arange(3, 48).repeat(2)
    alone, _ = fused.step(tokens, state)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    torch.testing.assert_close(fused.step(tokens, state)[0], alone, rtol=1e-6, atol=1e-6)


@needs_kernel
def test_weights_that_an_optimizer_has_changed_are_laid_out_again():
    """A fused optimizer changes weights without a new version of them."""
    model = built()
    with torch.no_grad():
        fuse(model, started(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    tokens = torch.tensor([3, 4, 5])
    with torch.no_grad():
        start = started(model)
        fused, fused_start = fuse(model, start)
        expected, _ = model.step(tokens, start.state)
        torch.testing.assert_close(fused.step(tokens, fused_start.state)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: model.train(),
        lambda model: model.decoder.blocks[0].attention.layer.output.register_forward_hook(lambda *_: None),
        lambda model: setattr(model.decoder.blocks[1], "cross", None),
    ],
)
@torch.no_grad()
def test_other_models_keep_their_step(change):
    model = built()
    change(model)
    start = started(model)
    assert fuse(model, start) == (model, start)


@pytest.mark.parametrize("decoder", ["2xhard", "2xgaussian", "2.superposition-8"])
@torch.no_grad()
def test_other_mechanisms_keep_their_step(decoder):
    model = built(decoder={"layers": decoder})
    start = started(model)
    assert fuse(model, start) == (model, start)


def test_with_gradients_the_model_keeps_its_step():
    model = built()
    start = started(model)
    assert fuse(model, start) == (model, start)


@needs_kernel
@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_those_of_the_model(beam, monkeypatch):
    model = built(d_model=32, num_heads=2)
    start, search = started(model), BeamSearch(beam)
    found = beam_search(model, start, 20, search, n_best=beam)
    monkeypatch.setattr("structattn.decoding.beam.search.fuse", lambda *arguments: arguments)
    expected = beam_search(model, start, 20, search, n_best=beam)
    assert [[each.tokens for each in of_line] for of_line in found] == [
        [each.tokens for each in of_line] for of_line in expected
    ]
