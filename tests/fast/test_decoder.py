"""The accelerated decoder: the logits of the modules, and only where it computes what they compute."""

import sys
from dataclasses import replace
from types import MethodType

import pytest
import torch
from torch.nn import functional as F

from structattn import acceleration
from structattn.attention import CrossSoftmaxAttention, SoftmaxAttention
from structattn.attention.heads import SoftmaxSelection
from structattn.decoding import (
    BeamSearch,
    Ensemble,
    beam_search,
    greedy_search,
    pad_sequences,
    sample,
    start_translation,
    weights_unchanged,
)
from structattn.fast.decoder import AcceleratedDecoder, accelerate_decoder
from structattn.fast.decoder.kernel import decoder_layers, has_decoder_kernel, pack_linears, packed_linear
from structattn.fast.decoder.model import parts_of, stepped_modules
from structattn.fast.decoder.sublayers import FastState, Step
from structattn.models import Block, Layers
from structattn.models.block import FeedForward
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.transformer import EncoderDecoderSettings

needs_kernel = pytest.mark.skipif(not has_decoder_kernel(), reason="the kernels were not built")
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


def accelerated(model):
    fast = accelerate_decoder(model)
    assert isinstance(fast, AcceleratedDecoder)
    return fast


def require_same_steps(model, padded=True, num_steps=12, tolerance=1e-5):
    """Compare the logits of the kernel with those of the modules, for beams that are reordered and grow."""
    fast, rows = accelerated(model), torch.arange(3)
    state, fast_state = started(model, padded).state, started(fast, padded).state
    assert isinstance(fast_state, FastState)
    generator = torch.Generator().manual_seed(0)
    for step in range(num_steps):
        tokens = torch.randint(3, 50, (len(rows),), generator=generator)
        before = fast_state
        expected, state = model.step(tokens, state)
        logits, fast_state = fast.step(tokens, fast_state)
        torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance)
        again, _ = fast.step(tokens, before)
        assert torch.equal(again, logits), "a state is a value"
        rows = torch.randint(len(rows), (3 + 5 * (step % 12),), generator=generator)
        state, fast_state = state.select(rows), fast_state.select(rows)


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
    require_same_steps(model, padded)


def gaussian(**changes):
    return {"attention": "gaussian"} | changes


HARD_CODED = {
    "the paper's": {"layers": "2xgaussian"},
    "offsets": {"layers": [gaussian(offsets=[-1, 0]), gaussian(offsets=[1, -3, 0.5, -8.25])]},
    "sigma": {"layers": [gaussian(sigma=0.3), gaussian(sigma=4.0, offsets=[-2])]},
    "window": {"layers": [gaussian(kernel="window", window=5), gaussian(kernel="index")]},
    "later positions alone": {"layers": [gaussian(offsets=[1], kernel="index"), gaussian(offsets=[50])]},
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


@pytest.mark.covering(1)
@needs_kernel
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("changes", [{}, {"norm": "post", "bias": False, "d_model": 72, "d_ff": None}], ids=str)
@pytest.mark.parametrize("name", HARD_CODED)
@torch.no_grad()
def test_logits_of_hard_coded_and_absent_attention_are_those_of_the_model(name, changes, padded):
    model = built(decoder=HARD_CODED[name], **changes)
    require_same_steps(model, padded, num_steps=30)


OTHER_ATTENTION = {
    "hard": {"decoder": {"layers": "2xhard", "cross_attention": "hard.softmax-1"}},
    "rotary": {"positions": {"kind": "rotary"}, "decoder": {"layers": "1.hard.1", "cross_attention": "2.hard"}},
    "rotary, halves, other base": {"positions": {"kind": "rotary", "layout": "halves", "base": 50.0}, "num_heads": 2},
    "ALiBi": {"positions": "alibi", "decoder": {"layers": "1.hard"}},
    "ALiBi, shifted": {"positions": {"kind": "alibi", "variant": "shifted"}},
}


@pytest.mark.covering(1)
@needs_kernel
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", OTHER_ATTENTION)
@torch.no_grad()
def test_logits_of_hard_attention_and_other_positions_are_those_of_the_model(name, padded):
    model = built(**{"d_model": 24} | OTHER_ATTENTION[name])
    assert len(started(accelerated(model)).state.weights.runs) == 1, "all layers are in one call"
    require_same_steps(model, padded)


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
    assert [len(run.parts) for run in started(accelerated(model)).state.weights.runs] == runs
    require_same_steps(model, padded)


@needs_kernel
@pytest.mark.parametrize("changes", [{}, {"decoder": {"layers": "2xnone"}}, MODULES["first and last"][0]], ids=str)
@torch.no_grad()
def test_states_of_another_batch_or_width_are_refused(changes):
    fast = accelerated(built(**changes))
    state, tokens = started(fast).state, torch.tensor([3, 4, 5, 6])
    for each in (state, fast.step(tokens[:3], state)[1], state.select(torch.tensor([2, 2, 0]))):
        for batch in (0, 1, 4):
            with pytest.raises(ValueError, match=f"the step has batch size {batch}; expected 3, the state's"):
                fast.step(tokens[:batch], each)
    with pytest.raises(ValueError, match=r"input has shape \(3, 20\); expected \(3, 12\)"):
        fast.step(tokens[:3], started(accelerated(built(d_model=12, **changes))).state)


@needs_kernel
@pytest.mark.parametrize("heads", [(8, 9), (9, 8)])
@torch.no_grad()
def test_layers_with_different_numbers_of_heads(heads):
    blocks = [Block(72, SoftmaxAttention(72, each), cross=CrossSoftmaxAttention(72, each)) for each in heads]
    model = built(d_model=72, num_heads=8)
    model.decoder = Layers(blocks).eval()
    require_same_steps(model, tolerance=1e-4)


@needs_kernel
@torch.no_grad()
def test_a_sublayer_without_norm_is_a_module():
    model = built()
    model.decoder.blocks[1].cross.norm = None
    require_same_steps(model)


@needs_kernel
@torch.no_grad()
def test_hard_attention_takes_the_first_of_equal_scores_and_keeps_nan():
    model = built(decoder={"layers": "2xhard"})
    for block in model.decoder.blocks:
        block.attention.layer.projection.weight[:20] = 0  # queries
        block.attention.layer.projection.bias[:20] = 0
    require_same_steps(model)
    model.decoder.blocks[0].attention.layer.projection.bias[0] = torch.nan
    fast = accelerated(model)
    start = started(fast)
    assert fast.step(start.tokens, start.state)[0].isnan().all()


@needs_kernel
@torch.no_grad()
def test_hard_coded_heads_keep_only_the_positions_that_they_need():
    model = built(decoder={"layers": [gaussian(sigma=0.3), gaussian(kernel="window", window=5)]})
    fast = accelerated(model)
    start = started(fast)
    state, needed = start.state, model.decoder.blocks[0].attention.layer.heads.gaussians.values_needed(torch.float32)
    for _ in range(needed + 3):
        _, state = fast.step(start.tokens, state)
    assert state.cache.num_steps == needed


@needs_kernel
@torch.no_grad()
def test_threads_change_nothing(monkeypatch):
    model = built()
    fast = accelerated(model)
    start = started(fast)
    state = start.state.select(torch.arange(3).repeat(30))
    tokens = torch.arange(3, 48).repeat(2)
    alone, _ = fast.step(tokens, state)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    torch.testing.assert_close(fast.step(tokens, state)[0], alone, rtol=1e-6, atol=1e-6)


@needs_kernel
def test_weights_that_an_optimizer_has_changed_are_laid_out_again():
    """A fused optimizer changes weights without a new version of them."""
    model = built()
    fast = accelerated(model)
    started(fast)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert_same_first_step(fast)


@torch.no_grad()
def assert_same_first_step(fast):
    tokens = torch.tensor([3, 4, 5])
    expected, _ = fast.model.step(tokens, started(fast.model).state)
    torch.testing.assert_close(fast.step(tokens, started(fast).state)[0], expected, rtol=1e-5, atol=1e-5)


@needs_kernel
@torch.no_grad()
def test_weights_are_laid_out_once_where_they_do_not_change():
    first, second = (accelerated(built(**changes)) for changes in ({}, {"norm": "post"}))
    with weights_unchanged():
        weights = started(first).state.weights
        assert started(first).state.weights is weights
        assert_same_first_step(second)
        assert started(first).state.weights is weights
    assert started(first).state.weights is not weights


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: setattr(model.decoder.blocks[1].cross.norm, "eps", 0.1),
        lambda model: setattr(model, "decoder", Layers([Block(20)])),
    ],
)
def test_models_that_the_kernel_is_not_for_stay_as_they_are(change, caplog):
    model = built()
    change(model)
    assert accelerate_decoder(model) is model
    assert caplog.messages == []


def with_hooks_for_all_modules(model):
    return torch.nn.modules.module.register_module_forward_hook(lambda *_: None)


@needs_kernel
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: model.train(),
        lambda model: model.decoder.train(),
        lambda model: model.decoder.blocks[0].attention.layer.output.register_forward_hook(lambda *_: None),
        with_hooks_for_all_modules,
    ],
)
@torch.no_grad()
def test_modules_run_while_the_kernel_cannot(change):
    model = built()
    fast = accelerated(model)
    handle = change(model)
    try:
        state = started(fast).state
        assert not isinstance(state, FastState)
        tokens = torch.tensor([3, 4, 5])
        torch.manual_seed(0)
        logits, _ = fast.step(tokens, state)
        torch.manual_seed(0)
        assert torch.equal(logits, model.step(tokens, state)[0])
    finally:
        if hasattr(handle, "remove"):
            handle.remove()


@needs_kernel
@torch.no_grad()
def test_modules_run_under_vmap():
    model = built()
    fast, sources = accelerated(model), torch.tensor([[[3, 4, 5]], [[6, 7, 8]]])

    def two_steps(model):
        def of_one(source):
            state = model.initial_state(source)
            logits, state = model.step(torch.ones(1, dtype=torch.long), state)
            return model.step(logits.argmax(-1) + 2, state)[0]

        return torch.func.vmap(of_one)(sources)

    torch.testing.assert_close(two_steps(fast), two_steps(model))


class Stateless(torch.nn.Module):
    """A mechanism whose state is None."""

    def __init__(self):
        super().__init__()
        self.map = torch.nn.Linear(20, 20)

    def forward(self, x, lengths=None):
        return self.map(x)

    def initial_state(self, batch_size):
        return None

    def step(self, x_t, state):
        return self.map(x_t), None


@needs_kernel
@torch.no_grad()
def test_a_mechanism_without_a_state_runs_between_the_others():
    model = built()
    model.decoder.blocks[0].attention.layer = Stateless()
    require_same_steps(model.eval())


@needs_kernel
@torch.no_grad()
def test_another_selection_runs_as_a_module():
    class First(SoftmaxSelection):
        def attend_cached(self, query, cache, positions, training):
            return cache.values[:, :, :1]

    model = built()
    model.decoder.blocks[0].attention.layer.selection = First(0.0)
    assert next(kind for part, kind in parts_of(model)) is None


@needs_kernel
def test_with_gradients_modules_run():
    fast = accelerated(built())
    ids, lengths = pad_sequences(SOURCES)
    logits, _ = fast.step(torch.tensor([3, 4, 5]), fast.initial_state(ids, lengths))
    assert logits.requires_grad


@needs_kernel
@pytest.mark.parametrize("decoder", [None, {"layers": "2xgaussian", "cross_attention": "none.softmax-1"}], ids=str)
@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_those_of_the_model(beam, decoder):
    model = built(decoder=decoder, d_model=32, num_heads=2)
    of_both = [
        beam_search(each, started(each), 20, BeamSearch(beam), n_best=beam) for each in (model, accelerated(model))
    ]
    plain, fast = ([[each.tokens for each in of_line] for of_line in found] for found in of_both)
    assert fast == plain


@needs_kernel
def test_ensembles_of_accelerated_and_plain_models():
    models = [built(norm=norm) for norm in ("pre", "post")]
    plain, mixed = Ensemble(models), Ensemble([accelerated(models[0]), models[1]])
    texts = []
    for ensemble in (plain, mixed):
        start = ensemble.start([started(member) for member in ensemble.models])
        texts.append([best.tokens for (best,) in beam_search(ensemble, start, 12)])
    assert texts[0] == texts[1]
    ids = torch.tensor([[5, 4, 2]])
    torch.testing.assert_close(mixed(ids, ids), plain(ids, ids))


# Models that compute something else than the kernel.


def with_gelu(self, x):
    return self.output(F.gelu(self.hidden(x)))


class Gelu(FeedForward):
    forward = with_gelu


def without_scale(self, x, state):
    y, state = SoftmaxAttention.step(self, x, state)
    return 0.5 * y, state


def patched_class(model, monkeypatch):
    monkeypatch.setattr(FeedForward, "forward", with_gelu)
    return "decoder.blocks.0.feedforward computes something else, which changes logits by"


def patched_norm(model, monkeypatch):
    forward = torch.nn.LayerNorm.forward
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: forward(self, x) + 0.1)
    return "decoder.blocks.0.attention computes something else"


def patched_logits(model, monkeypatch):
    logits = type(model).logits
    monkeypatch.setattr(type(model), "logits", lambda self, x: logits(self, x).tanh())
    return "what surrounds the sublayers computes something else"


def patched_instance(model, monkeypatch):
    attention = model.decoder.blocks[1].attention.layer
    attention.step = MethodType(without_scale, attention)
    return "decoder.blocks.1.attention.layer has hooks or methods of its own"


def hooked(model, monkeypatch):
    model.decoder.blocks[1].cross.layer.query.register_forward_hook(lambda *_: None)
    return "decoder.blocks.1.cross.layer.query has hooks or methods of its own"


def subclass(model, monkeypatch):
    for block in model.decoder.blocks:
        block.feedforward.layer.__class__ = Gelu
    return None  # it runs as a module between the others


SEARCHES = {
    "greedy": lambda model, start: greedy_search(model, start, 10),
    "beam": lambda model, start: [best for (best,) in beam_search(model, start, 10, BeamSearch(3))],
    "sampling": lambda model, start: sample(model, start, 10, torch.Generator().manual_seed(0)),
}


@pytest.mark.covering(1)
@needs_kernel
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("change", [patched_class, patched_norm, patched_logits, patched_instance, hooked, subclass])
def test_edited_models_decode_as_edited(change, search, monkeypatch, caplog):
    model = built()
    before = SEARCHES[search](model, started(model))
    warning = change(model, monkeypatch)
    fast, expected = accelerate_decoder(model), SEARCHES[search](model, started(model))
    found = SEARCHES[search](fast, started(fast))
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.log_probability for each in found] == pytest.approx([each.log_probability for each in expected])
    if change is not hooked:
        assert [each.log_probability for each in expected] != pytest.approx([each.log_probability for each in before])
    assert isinstance(fast, AcceleratedDecoder) == (warning is None)
    assert len(caplog.messages) == (warning is not None)
    assert warning is None or warning in caplog.text


@needs_kernel
def test_a_mechanism_whose_gate_is_zero_is_compared_with_another_gate(monkeypatch):
    step = SoftmaxAttention.step

    def gated(self, x, state):
        y, after = step(self, x, state)
        return y + self.output.bias * y, after

    monkeypatch.setattr(SoftmaxAttention, "step", gated)
    model = built()
    with torch.no_grad():
        for block in model.decoder.blocks:
            block.attention.layer.output.bias.zero_()
    assert accelerate_decoder(model) is model


@needs_kernel
def test_the_check_changes_nothing():
    model = built()
    model.train()
    state, weights = torch.get_rng_state(), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    accelerated(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert all(module.training for module in stepped_modules(model))


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def doubled(model):
    hidden = model.decoder.blocks[0].feedforward.layer.hidden
    hidden.__class__ = Doubled


@needs_kernel
@torch.no_grad()
def test_subclasses_of_linear_layers_run_as_modules():
    model = built()
    doubled(model)
    require_same_steps(model)


@needs_kernel
@torch.no_grad()
def test_nan_weights_reach_the_logits():
    model = built()
    model.decoder.blocks[0].feedforward.layer.hidden.weight[0, 0] = torch.nan
    fast = accelerated(model)
    assert fast.step(torch.tensor([4, 4, 4]), started(fast).state)[0].isnan().all()


@needs_kernel
@torch.no_grad()
def test_inputs_of_any_strides_and_memories_that_are_too_short():
    model = built()
    fast = accelerated(model)
    start = started(fast)
    state = replace(start.state, cache=start.state.cache.extend())
    indices = state.cache.row_indices
    rows, packed = list(Step(state).cached_rows(state.weights.in_kernel)), state.weights.packed
    x = torch.randn(20, 3).T
    found = [decoder_layers(packed, each, rows, indices, state.memory) for each in (x, x.contiguous())]
    assert torch.equal(*found)
    with pytest.raises(IndexError, match=r"memory.first contain"):
        decoder_layers(packed, x, rows, indices, replace(state.memory, size=1000))


# Products with packed weights.

SIZES = [(0, 3, 2), (1, 1, 1), (2, 7, 5), (7, 63, 33), (13, 64, 32), (29, 288, 507), (3, 0, 4), (50, 64, 300)]


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@needs_kernel
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_products_are_those_of_torch(sizes, bias, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, inputs, outputs = sizes
    x, weight, added = numbers(rows, inputs), numbers(outputs, inputs), numbers(outputs) if bias else None
    (packed,) = pack_linears([(weight, added)])
    found = packed_linear(x, packed)
    torch.testing.assert_close(found, F.linear(x, weight, added), rtol=1e-5, atol=5e-5)  # sums of 288 products


@needs_kernel
def test_threads_change_no_sum(monkeypatch):
    x, (packed,) = numbers(40, 288), pack_linears([(numbers(1000, 288), None)])
    alone = packed_linear(x, packed)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert torch.equal(packed_linear(x, packed), alone)


@needs_kernel
def test_slices_and_transposed_tensors_are_taken_as_they_are():
    x, table = numbers(9, 4).T, numbers(20, 18)[:, ::2]
    (packed,) = pack_linears([(table[2:], None)])
    torch.testing.assert_close(packed_linear(x, packed), x @ table[2:].T, rtol=1e-5, atol=1e-5)


@needs_kernel
def test_layers_that_are_packed_together_do_not_overlap():
    layers = [(numbers(outputs, 9), numbers(outputs)) for outputs in (1, 33, 64, 7)]
    x = numbers(5, 9)
    for packed, layer in zip(pack_linears(layers), layers, strict=True):
        torch.testing.assert_close(packed_linear(x, packed), F.linear(x, *layer), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_without_the_package_the_model_is_itself(monkeypatch):
    model = built()
    assert ("step" in vars(acceleration.accelerate(model))) == has_decoder_kernel()
    for name in [name for name in sys.modules if name.startswith(acceleration.FAST)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, acceleration.FAST, None)
    assert acceleration.accelerate(model) is model


@needs_kernel
@torch.no_grad()
def test_an_accelerated_model_of_any_size_decodes_by_the_kernel(monkeypatch):
    model = built()
    fast = acceleration.accelerate(model)
    assert isinstance(fast, type(model))
    expected = SEARCHES["beam"](model, started(model))
    monkeypatch.setattr(type(model), "step", None)  # that of the modules
    assert [each.tokens for each in SEARCHES["beam"](fast, started(fast))] == [each.tokens for each in expected]
