"""The fused decoder: the logits of the model's own step, for all placements of norms, and only where it applies."""

from dataclasses import replace

import pytest
import torch

from structattn.attention import CrossSoftmaxAttention, SoftmaxAttention
from structattn.decoding import BeamSearch, beam_search, pad_sequences, start_translation
from structattn.decoding.fused import FusedDecoder, fuse
from structattn.decoding.fused_sublayers import Step
from structattn.models import Block, Layers
from structattn.models.builders.embeddings import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.operators.decoder_layers import can_run_decoder_layers, decoder_layers
from structattn.operators.linear import linear_precision
from structattn.settings.encoder_decoder import EncoderDecoderSettings

needs_kernel = pytest.mark.skipif(not can_run_decoder_layers("float32"), reason="the kernels were not built")
needs_bf16 = pytest.mark.skipif(not can_run_decoder_layers("bf16"), reason="the kernels have no bf16 products here")
needs_int8 = pytest.mark.skipif(not can_run_decoder_layers("int8"), reason="the kernels have no int8 products here")
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


def steps_of_both(model, start, num_steps=12):
    """Yield the logits of the fused decoder and of the model, for beams that are reordered and grow."""
    fused, fused_start = fuse(model, start)
    assert isinstance(fused, FusedDecoder)
    state, fused_state, rows = start.state, fused_start.state, torch.arange(3)
    generator = torch.Generator().manual_seed(0)
    for step in range(num_steps):
        tokens = torch.randint(3, 50, (len(rows),), generator=generator)
        before = fused_state
        expected, state = model.step(tokens, state)
        logits, fused_state = fused.step(tokens, fused_state)
        yield logits, expected
        again, _ = fused.step(tokens, before)
        assert torch.equal(again, logits), "a state is a value"
        rows = torch.randint(len(rows), (3 + 5 * (step % 12),), generator=generator)
        state, fused_state = state.select(rows), fused_state.select(rows)


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
    for logits, expected in steps_of_both(model, started(model, padded)):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def gaussian(**changes):
    return {"attention": "gaussian"} | changes


HARD_CODED = {
    "the paper's": {"layers": "2xgaussian"},
    "offsets": {"layers": [gaussian(offsets=[-1, 0]), gaussian(offsets=[1, -3, 0.5, -8.25])]},
    "sigma": {"layers": [gaussian(sigma=0.3), gaussian(sigma=4.0, offsets=[-2])]},
    "window": {"layers": [gaussian(kernel="window", window=5), gaussian(kernel="index")]},
    "softmax and hard-coded": {"layers": "1.gaussian"},
    "no self-attention": {"layers": "2xnone"},
    "one without self-attention": {"layers": "gaussian.none"},
    "one cross-attention": {"layers": "3xgaussian", "cross_attention": "2xnone.softmax-1"},
    "hard-coded cross-attention": {
        "layers": "2xgaussian",
        "cross_attention": [gaussian(length_ratio=0.963), gaussian(offsets=[2], sigma=2.0, floor=False)],
    },
    "all kinds": {"layers": "1.gaussian", "cross_attention": "gaussian.softmax-2"},
}


@needs_kernel
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("changes", [{}, {"norm": "post", "bias": False, "d_model": 72, "d_ff": None}], ids=str)
@pytest.mark.parametrize("name", HARD_CODED)
@torch.no_grad()
def test_logits_of_hard_coded_and_absent_attention_are_those_of_the_model(name, changes, padded):
    model = built(decoder=HARD_CODED[name], **changes)
    for logits, expected in steps_of_both(model, started(model, padded), num_steps=30):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


OTHER_ATTENTION = {
    "hard": {"decoder": {"layers": "2xhard", "cross_attention": "hard.softmax-1"}},
    "rotary": {"positions": {"kind": "rotary"}, "decoder": {"layers": "1.hard.1", "cross_attention": "2.hard"}},
    "rotary, halves, other base": {"positions": {"kind": "rotary", "layout": "halves", "base": 50.0}, "num_heads": 2},
    "ALiBi": {"positions": "alibi", "decoder": {"layers": "1.hard"}},
    "ALiBi, shifted": {"positions": {"kind": "alibi", "variant": "shifted"}},
}


@needs_kernel
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", OTHER_ATTENTION)
@torch.no_grad()
def test_logits_of_hard_attention_and_other_positions_are_those_of_the_model(name, padded):
    model = built(**{"d_model": 24} | OTHER_ATTENTION[name])
    start = started(model, padded)
    assert len(fuse(model, start)[0].runs) == 1, "all layers are in one call"
    for logits, expected in steps_of_both(model, start):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def pointer(attention="softmax"):
    return {"attention": attention, "stack": {"attention": "stack_pointer"}}


MODULES = {  # the numbers of sublayers of each run
    "a stack in the middle": ({"decoder": {"layers": "1.superposition-8.1"}}, [3, 1, 5]),
    "first and last": ({"decoder": {"layers": "nondeterministic-1-2-3.1.superposition-8"}}, [1, 5, 1, 2]),
    "added stacks": (
        {"decoder": {"layers": [pointer(), pointer("gaussian"), {"attention": "softmax"}]}},
        [3, 1, 3, 1, 3],
    ),
    "learned beside hard-coded heads": ({"decoder": {"layers": [gaussian(num_learned_heads=1), gaussian()]}}, [1, 5]),
    "relative positions": ({"positions": "relative"}, [1, 2, 1, 2]),
}


@needs_kernel
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MODULES)
@torch.no_grad()
def test_sublayers_that_are_not_in_the_kernel_run_between_the_others(name, padded):
    changes, runs = MODULES[name]
    model = built(**changes)
    start = started(model, padded)
    assert [len(run.parts) for run in fuse(model, start)[0].runs] == runs
    for logits, expected in steps_of_both(model, start):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("heads", [(8, 9), (9, 8)])
@torch.no_grad()
def test_layers_with_different_numbers_of_heads(heads):
    blocks = [Block(72, SoftmaxAttention(72, each), cross=CrossSoftmaxAttention(72, each)) for each in heads]
    model = built(d_model=72, num_heads=8)
    model.decoder = Layers(blocks).eval()
    for logits, expected in steps_of_both(model, started(model)):
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@needs_kernel
@torch.no_grad()
def test_a_sublayer_without_norm_is_a_module():
    model = built()
    model.decoder.blocks[1].cross.norm = None
    for logits, expected in steps_of_both(model, started(model)):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


@needs_kernel
@torch.no_grad()
def test_hard_attention_takes_the_first_of_equal_scores_and_keeps_nan():
    model = built(decoder={"layers": "2xhard"})
    for block in model.decoder.blocks:
        block.attention.layer.projection.weight[:20] = 0  # queries
        block.attention.layer.projection.bias[:20] = 0
    for logits, expected in steps_of_both(model, started(model)):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    model.decoder.blocks[0].attention.layer.projection.bias[0] = torch.nan
    fused, start = fuse(model, started(model))
    assert fused.step(start.tokens, start.state)[0].isnan().all()


@needs_kernel
@torch.no_grad()
def test_hard_coded_heads_keep_only_the_positions_that_they_need():
    model = built(decoder={"layers": [gaussian(sigma=0.3), gaussian(kernel="window", window=5)]})
    fused, start = fuse(model, started(model))
    state, needed = start.state, model.decoder.blocks[0].attention.layer.heads.gaussians.values_needed(torch.float32)
    for _ in range(needed + 3):
        _, state = fused.step(start.tokens, state)
    assert state.cache.num_steps == needed


@needs_int8
@pytest.mark.parametrize("name", ["the paper's", "all kinds"])
@torch.no_grad()
def test_logits_in_int8_are_those_of_the_model_in_int8(name):
    """Both quantize the same numbers; where rounding differs, a quantized number may, by one unit."""
    model = built(decoder=HARD_CODED[name], d_model=96, d_ff=130)
    with linear_precision("int8"):
        for logits, expected in steps_of_both(model, started(model)):
            assert (logits - expected).norm() <= 2e-3 * expected.norm()
            assert not torch.equal(logits, torch.zeros_like(logits))


@needs_bf16
@pytest.mark.parametrize("name", ["the paper's", "all kinds"])
@torch.no_grad()
def test_logits_in_bfloat16_are_those_of_the_model_in_bfloat16(name):
    model = built(decoder=HARD_CODED[name], d_model=96, d_ff=130)
    start, different = started(model), []
    for (logits, expected), (_, exact) in zip(_in_bf16(model, start), steps_of_both(model, start), strict=True):
        assert (logits - expected).norm() <= 5e-3 * expected.norm()
        different.append(not torch.equal(expected, exact))
    assert all(different), "bfloat16 was used"


def _in_bf16(model, start):
    steps = steps_of_both(model, start)
    while True:
        with linear_precision("bf16"):
            found = next(steps, None)
        if found is None:
            return
        yield found


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


@needs_kernel
@torch.no_grad()
def test_weights_are_kept_for_the_next_batch_until_they_change():
    model = built()
    with linear_precision("float32"):
        first, _ = fuse(model, started(model))
        second, _ = fuse(model, started(model))
        assert second is first
        model.decoder.blocks[1].feedforward.layer.output.weight.mul_(2)
        third, start = fuse(model, started(model))
        assert third is not first
        expected, _ = model.step(start.tokens, started(model).state)
        torch.testing.assert_close(third.step(start.tokens, start.state)[0], expected, rtol=1e-5, atol=1e-5)
    assert fuse(model, started(model))[0] is not third


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: model.train(),
        lambda model: model.decoder.blocks[0].attention.layer.output.register_forward_hook(lambda *_: None),
        lambda model: setattr(model.decoder.blocks[1].cross.norm, "eps", 0.1),
    ],
)
@torch.no_grad()
def test_other_models_keep_their_step(change):
    model = built()
    change(model)
    start = started(model)
    assert fuse(model, start) == (model, start)


def test_with_gradients_the_model_keeps_its_step():
    model = built()
    start = started(model)
    assert fuse(model, start) == (model, start)


@needs_kernel
@pytest.mark.parametrize("decoder", [None, {"layers": "2xgaussian", "cross_attention": "none.softmax-1"}], ids=str)
@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_those_of_the_model(beam, decoder, monkeypatch):
    model = built(decoder=decoder, d_model=32, num_heads=2)
    start, search = started(model), BeamSearch(beam)
    found = beam_search(model, start, 20, search, n_best=beam)
    monkeypatch.setattr("structattn.decoding.beam.search.fuse", lambda *arguments: arguments)
    expected = beam_search(model, start, 20, search, n_best=beam)
    assert [[each.tokens for each in of_line] for of_line in found] == [
        [each.tokens for each in of_line] for of_line in expected
    ]


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def doubled(model):
    hidden = model.decoder.blocks[0].feedforward.layer.hidden
    hidden.__class__ = Doubled


def with_hooks_for_all_modules(model):
    return torch.nn.modules.module.register_module_forward_hook(lambda *_: None)


@needs_kernel
@pytest.mark.parametrize("change", [lambda model: model.decoder.train(), with_hooks_for_all_modules])
@torch.no_grad()
def test_models_that_must_run_as_modules(change):
    model = built()
    start, handle = started(model), change(model)
    try:
        assert not isinstance(fuse(model, start)[0], FusedDecoder)
    finally:
        if hasattr(handle, "remove"):
            handle.remove()


@needs_kernel
@torch.no_grad()
def test_subclasses_of_linear_layers_run_as_modules():
    model = built()
    doubled(model)
    for logits, expected in steps_of_both(model, started(model)):
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


@needs_kernel
@torch.no_grad()
def test_nan_weights_reach_the_logits():
    model = built()
    model.decoder.blocks[0].feedforward.layer.hidden.weight[0, 0] = torch.nan
    start = started(model)
    fused, fused_start = fuse(model, start)
    assert fused.step(torch.tensor([4, 4, 4]), fused_start.state)[0].isnan().all()


@needs_kernel
@torch.no_grad()
def test_inputs_of_any_strides_and_memories_that_are_too_short():
    model = built()
    fused, start = fuse(model, started(model))
    state = replace(start.state, cache=start.state.cache.extend())
    indices = state.cache.row_indices
    rows = list(Step(state).cached_rows([(part, kind) for run in fused.runs for part, kind in run.parts]))
    x = torch.randn(20, 3).T
    found = [decoder_layers(fused.packed, each, rows, indices, state.memory) for each in (x, x.contiguous())]
    assert torch.equal(*found)
    with pytest.raises(IndexError, match=r"memory.first contain"):
        decoder_layers(fused.packed, x, rows, indices, replace(state.memory, size=1000))
