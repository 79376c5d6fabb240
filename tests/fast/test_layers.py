"""Layers by kernels, compared with the modules, and the cases in which modules are called."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import structattn.fast.layers as layers_module
from structattn.attention import NondeterministicStackAttention, SoftmaxAttention, SuperpositionStackAttention
from structattn.attention.heads import SoftmaxSelection
from structattn.attention.positions import RotaryPositions
from structattn.fast.layers import FastLayers, can_run, is_replaceable
from structattn.fast.residual_sublayers import residual_sublayers
from structattn.models import Block, FeedForward, Layers

D = 12


def attention(rate=0.0, **keywords):
    return Layers([Block(D, SoftmaxAttention(D, 3, dropout=rate, **keywords), dropout=rate)])


def feedforward(rate=0.0):
    return Layers([Block(D, feedforward=FeedForward(D, 20, rate), dropout=rate)])


def stack(rate=0.0, **keywords):
    return Layers([Block(D, NondeterministicStackAttention(D, 2, 2, 3, **keywords), dropout=rate)])


def residual_of(layers):
    (residual,) = layers.blocks[0].children()
    return residual


def examples(dtype=torch.float64):
    return torch.randn(3, 9, D, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


each_kind = pytest.mark.parametrize("make", [attention, feedforward, stack])


@pytest.fixture
def calls(monkeypatch):
    """The number of sublayers in each call of the kernels."""
    found = []

    def counted(x, sublayers, *lengths):
        if sublayers:
            found.append(len(sublayers))
        return residual_sublayers(x, sublayers, *lengths)

    monkeypatch.setattr(layers_module, "residual_sublayers", counted)
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("lengths", [None, torch.tensor([9, 4, 0])])
@each_kind
def test_equals_the_modules_and_drops_the_same(make, dtype, rate, lengths, calls):
    torch.manual_seed(1)
    layers, x = make(rate).to(dtype), examples(dtype)
    cotangent = torch.randn(3, 9, D, dtype=dtype)
    found = []
    for form in (FastLayers.of(layers), layers):
        torch.manual_seed(2)
        y = form(x, lengths)
        found.append((y, *torch.autograd.grad(y, [x, *layers.parameters()], cotangent), torch.get_rng_state()))
    assert calls == [1]
    tolerances = {"rtol": 1e-10, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **tolerances)


@pytest.mark.parametrize(
    "options",
    [{"window": 4}, {"pop_offset": 1.5, "phase_offset": 2}, {"pushed_activation": "exp", "window": 2}],
    ids=str,
)
def test_options_of_a_stack(options, calls):
    torch.manual_seed(1)
    layers, x = stack(**options).double(), examples()
    torch.nn.init.normal_(residual_of(layers).layer.bottom)
    found = [
        (y, *torch.autograd.grad(y.square().sum(), [x, *layers.parameters()]))
        for y in (FastLayers.of(layers)(x), layers(x))
    ]
    assert calls == [1]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@each_kind
def test_mode_and_weights_hold_at_each_call(make, calls):
    layers, x = make(0.5).double(), examples()
    fast = FastLayers.of(layers)
    assert fast.training
    layers.eval()
    before = torch.get_rng_state()
    torch.testing.assert_close(fast(x), layers(x))
    with torch.no_grad():
        residual_of(layers).norm.weight.mul_(2)
    residual_of(layers).norm.bias = torch.nn.Parameter(torch.ones(D, dtype=x.dtype))
    torch.testing.assert_close(fast(x), layers(x))
    assert torch.equal(torch.get_rng_state(), before)
    assert calls == [1, 1]
    fast.train()
    assert layers.training
    assert residual_of(layers).training


@pytest.mark.covering(2)
@each_kind
@pytest.mark.parametrize("part", ["norm", "layer", "first", "second"])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_are_called(make, part, kind, calls):
    layers, x, seen = make(), examples(torch.float32), []
    fast, residual = FastLayers.of(layers), residual_of(layers)
    maps = [module for module in residual.layer.children() if isinstance(module, torch.nn.Linear)]
    module = {"norm": residual.norm, "layer": residual.layer, "first": maps[0], "second": maps[1]}[part]
    handle = getattr(module, f"register_{kind}_hook")(lambda *_: seen.append(1))
    if (part, kind) != ("first", "full_backward") or make is not attention:  # torch has none for views
        fast(x).sum().backward()
        assert seen
        assert not calls
    handle.remove()
    fast(x)
    assert calls == [1]


def test_global_hooks_are_called(calls):
    fast, names = FastLayers.of(feedforward()), []
    with torch.nn.modules.module.register_module_forward_hook(lambda module, *_: names.append(type(module).__name__)):
        fast(examples(torch.float32))
    assert names == ["LayerNorm", "Linear", "Linear", "FeedForward", "Residual", "Block", "Identity", "FastLayers"]
    assert not calls


@each_kind
class TestModulesAreCalled:
    def test_under_autocast(self, make, calls):
        layers, x = make(), examples(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(FastLayers.of(layers)(x), layers(x))
        assert not calls

    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
    def test_under_transforms(self, make, calls):
        layers, x = make().double(), examples()
        fast = FastLayers.of(layers)

        def total(x):
            return fast(x).sum()

        torch.testing.assert_close(torch.func.grad(total)(x), torch.autograd.grad(layers(x).sum(), x)[0])
        mapped = torch.vmap(fast)(torch.stack([x, 2 * x]))
        torch.testing.assert_close(mapped, torch.stack([layers(x), layers(2 * x)]))
        _, tangent = torch.func.jvp(fast, (x.detach(),), (torch.ones_like(x),))
        assert not calls
        with torch.no_grad():
            difference = (fast(x + 1e-5) - fast(x - 1e-5)) / 2e-5
        torch.testing.assert_close(tangent, difference, rtol=1e-6, atol=1e-8)

    def test_for_long_sequences(self, make, calls):
        FastLayers.of(make())(torch.zeros(1, 513, D))
        assert not calls

    def test_for_weights_of_another_shape_or_precision(self, make, calls):
        layers = make()
        fast = FastLayers.of(layers)
        residual_of(layers).norm.weight = torch.nn.Parameter(torch.ones(D, dtype=torch.float64))
        with pytest.raises(RuntimeError, match=r"dtype|mixed"):
            fast(examples(torch.float32))
        residual_of(layers).norm.weight = torch.nn.Parameter(torch.ones(D - 1))
        with pytest.raises(RuntimeError, match="shape"):
            fast(examples(torch.float32))
        assert not calls

    def test_for_weights_of_another_class(self, make, calls):
        class Own(torch.Tensor):
            __torch_function__ = torch._C._disabled_torch_function_impl  # results are plain tensors

        layers = make()
        fast, residual = FastLayers.of(layers), residual_of(layers)
        residual.norm._parameters["weight"] = residual.norm.weight.detach().as_subclass(Own)
        x = examples(torch.float32)
        torch.testing.assert_close(fast(x), layers(x))
        assert not calls

    def test_for_weights_that_are_parametrized_later(self, make, calls):
        layers, x = make(), examples(torch.float32)
        fast = FastLayers.of(layers)
        torch.nn.utils.parametrizations.spectral_norm(residual_of(layers).layer.output)
        fast.eval(), layers.eval()
        torch.testing.assert_close(fast(x), layers(x))
        assert not calls

    def test_under_modes_that_see_each_operation(self, make, calls):
        layers, x = make(), examples(torch.float32).detach()
        traced = make_fx(FastLayers.of(layers))(x)
        torch.testing.assert_close(traced(2 * x), layers(2 * x))
        assert not calls
        with torch.device("cpu"):  # is a mode, too
            FastLayers.of(layers)(x)
        assert calls

    def test_of_another_class(self, make):
        class Doubled(torch.nn.LayerNorm):
            def forward(self, x):
                return 2 * super().forward(x)

        residual = residual_of(make())
        assert is_replaceable(residual)
        residual.norm = Doubled(D)
        assert not is_replaceable(residual)

    def test_with_more_modules(self, make):
        residual = residual_of(make())
        residual.layer.gate = torch.nn.Linear(D, D)
        assert not is_replaceable(residual)


def test_a_bottom_vector_of_another_size_is_left_to_the_modules(calls):
    layers = stack()
    fast = FastLayers.of(layers)
    residual_of(layers).layer.bottom = torch.nn.Parameter(torch.ones(2))
    with pytest.raises((RuntimeError, ValueError)):
        fast(examples(torch.float32))
    assert not calls


@pytest.mark.parametrize("positions", [RotaryPositions(4), lambda query, key, first: (query, key, None)])
def test_positions_need_modules(positions):
    assert not is_replaceable(residual_of(attention(positions=positions)))


def test_another_selection_needs_modules():
    class Own(SoftmaxSelection):
        pass

    residual = residual_of(attention())
    assert is_replaceable(residual)
    residual.layer.selection = Own(0.0)
    assert not is_replaceable(residual)


@pytest.mark.parametrize(("d_model", "d_ff"), [(96, 20), (64, 300)])
def test_large_sublayers_need_modules(d_model, d_ff):
    assert not is_replaceable(residual_of(Layers([Block(d_model, feedforward=FeedForward(d_model, d_ff))])))
    assert is_replaceable(residual_of(Layers([Block(64, feedforward=FeedForward(64, 256))])))


def test_inputs_that_kernels_take():
    x = torch.zeros(2, 3, D)
    assert can_run(x)
    assert can_run(x.double())
    assert not any(map(can_run, (x[0], x.half(), x.to("meta"), "x")))
    assert not torch.func.vmap(lambda x: torch.tensor(can_run(x)))(x[None]).any()
    with torch.autograd.forward_ad.dual_level():
        assert not can_run(x)


def whole_block(**keywords):
    return Block(D, **{"attention": SoftmaxAttention(D, 3), "feedforward": FeedForward(D, 20), **keywords}, dropout=0.2)


def test_several_blocks_take_one_call(calls):
    torch.manual_seed(1)
    stack = whole_block(attention=SuperpositionStackAttention(D, 3))
    layers = Layers([whole_block(), whole_block(feedforward=None), stack, whole_block()], torch.nn.LayerNorm(D))
    x, lengths, fast = examples(), torch.tensor([9, 4, 2]), FastLayers.of(layers.double())
    found = []
    for form in (layers, fast, fast.hidden_states):
        torch.manual_seed(2)
        y = form(x, lengths)
        found.append((y, *torch.autograd.grad(y.square().sum(), [x, *layers.parameters()])))
    assert calls == [3, 3, 3, 3]
    for expected, *others in zip(*found, strict=True):
        for other in others:
            torch.testing.assert_close(other, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("part", ["block", "residual"])
def test_hooks_of_a_block_are_called(part, calls):
    layers, seen = Layers([whole_block(), whole_block(), whole_block()]), []
    fast = FastLayers.of(layers)
    module = layers.blocks[1] if part == "block" else layers.blocks[1].feedforward
    module.register_forward_hook(lambda *_: seen.append(1))
    fast(examples(torch.float32))
    assert seen
    assert not calls


@each_kind
def test_a_wrong_width_is_refused_by_the_modules(make):
    with pytest.raises(RuntimeError, match="normalized_shape"):
        FastLayers.of(make())(torch.zeros(2, 3, 7))
