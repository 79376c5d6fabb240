"""Residual sublayers by one kernel, compared with their modules, and the cases in which modules are called."""

import pytest
import torch

import structattn.models.block as block_module
import structattn.models.layers as layers_module
from structattn.attention import NondeterministicStackAttention, SoftmaxAttention, SuperpositionStackAttention
from structattn.attention.positions import RotaryPositions
from structattn.models import Block, FeedForward, Layers
from structattn.models.block import Residual
from structattn.operators.residual_sublayers import residual_sublayers

D = 12


def attention(rate=0.0, **keywords):
    return Residual(SoftmaxAttention(D, 3, rate, **keywords), torch.nn.LayerNorm(D), dropout=rate)


def feedforward(rate=0.0):
    return Residual(FeedForward(D, 20, rate), torch.nn.LayerNorm(D), dropout=rate)


def stack(rate=0.0, **keywords):
    return Residual(NondeterministicStackAttention(D, 2, 2, 3, **keywords), torch.nn.LayerNorm(D), dropout=rate)


def by_modules(residual, x, *arguments):
    return residual._add_residual(x, residual.layer(residual.norm(x), *arguments))


def examples(dtype=torch.float64):
    return torch.randn(3, 9, D, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.fixture
def calls(monkeypatch):
    """The number of sublayers in each call of the kernels."""
    found = []
    for module in (block_module, layers_module):

        def counted(x, sublayers, *lengths):
            found.append(len(sublayers))
            return residual_sublayers(x, sublayers, *lengths)

        monkeypatch.setattr(module, "residual_sublayers", counted)
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("lengths", [None, torch.tensor([9, 4, 0])])
@pytest.mark.parametrize("make", [attention, feedforward, stack])
def test_equals_the_modules_and_drops_the_same(make, dtype, rate, lengths, calls):
    torch.manual_seed(1)
    residual, x = make(rate).to(dtype), examples(dtype)
    arguments = () if make is feedforward else (lengths,)
    cotangent = torch.randn(3, 9, D, dtype=dtype)
    found = []
    for call in (residual, lambda *x: by_modules(residual, *x)):
        torch.manual_seed(2)
        y = call(x, *arguments)
        found.append((y, *torch.autograd.grad(y, [x, *residual.parameters()], cotangent), torch.get_rng_state()))
    assert len(calls) == 1
    tolerances = {"rtol": 1e-10, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **tolerances)


@pytest.mark.parametrize(
    "options", [{"window": 4}, {"pop_offset": 1.5}, {"pushed_activation": "exp", "window": 2}], ids=str
)
def test_options_of_a_stack(options, calls):
    torch.manual_seed(1)
    residual, x = stack(**options).double(), examples()
    torch.nn.init.normal_(residual.layer.bottom)
    found = [
        (y, *torch.autograd.grad(y.square().sum(), [x, *residual.parameters()]))
        for y in (residual(x), by_modules(residual, x))
    ]
    assert len(calls) == 1
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("make", [attention, feedforward, stack])
def test_evaluation_has_no_dropout(make, calls):
    residual, x = make(0.5).double().eval(), examples()
    before = torch.get_rng_state()
    torch.testing.assert_close(residual(x), by_modules(residual, x))
    assert len(calls) == 1
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("make", [attention, feedforward, stack])
@pytest.mark.parametrize("part", ["norm", "layer", "first", "second"])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_are_called(make, part, kind, calls):
    residual, x, seen = make(), examples(torch.float32), []
    maps = [module for module in residual.layer.children() if isinstance(module, torch.nn.Linear)]
    module = {"norm": residual.norm, "layer": residual.layer, "first": maps[0], "second": maps[1]}[part]
    handle = getattr(module, f"register_{kind}_hook")(lambda *_: seen.append(1))
    if (part, kind) != ("first", "full_backward") or make is not attention:  # torch has none for views
        residual(x).sum().backward()
        assert seen
        assert not calls
    handle.remove()
    residual(x)
    assert len(calls) == 1


def test_global_hooks_are_called(calls):
    names = []
    with torch.nn.modules.module.register_module_forward_hook(lambda module, *_: names.append(type(module).__name__)):
        feedforward()(examples(torch.float32))
    assert names == ["LayerNorm", "Linear", "Linear", "FeedForward", "Residual"]


@pytest.mark.parametrize("make", [attention, feedforward, stack])
class TestModulesAreCalled:
    def test_under_autocast(self, make, calls):
        residual, x = make(), examples(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(residual(x), by_modules(residual, x))
        assert not calls

    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
    def test_under_transforms(self, make, calls):
        residual, x = make().double(), examples()

        def total(x):
            return residual(x).sum()

        torch.testing.assert_close(torch.func.grad(total)(x), torch.autograd.grad(total(x), x)[0])
        mapped = torch.vmap(residual)(torch.stack([x, 2 * x]))
        torch.testing.assert_close(mapped, torch.stack([residual(x), residual(2 * x)]))
        calls.clear()
        _, tangent = torch.func.jvp(residual, (x.detach(),), (torch.ones_like(x),))
        assert not calls
        with torch.no_grad():
            difference = (residual(x + 1e-5) - residual(x - 1e-5)) / 2e-5
        torch.testing.assert_close(tangent, difference, rtol=1e-6, atol=1e-8)

    def test_for_long_sequences(self, make, calls):
        make()(torch.zeros(1, 513, D))
        assert not calls

    def test_of_another_class(self, make, calls):
        class Doubled(torch.nn.LayerNorm):
            def forward(self, x):
                return 2 * super().forward(x)

        residual, x = make().double(), examples()
        residual.norm = Doubled(D).double()
        torch.testing.assert_close(residual(x), by_modules(residual, x))
        assert not calls


def test_positions_need_modules(calls):
    residual, x = attention(positions=RotaryPositions(4)), examples(torch.float32)
    torch.testing.assert_close(residual(x), by_modules(residual, x))
    assert not calls


def test_a_block_takes_two_calls(calls):
    block = Block(D, SoftmaxAttention(D, 3), feedforward=FeedForward(D, 20))
    block(examples(torch.float32))
    assert len(calls) == 2
    Block(D, SoftmaxAttention(D, 3), feedforward=FeedForward(D, 20), norm="post")(examples(torch.float32))
    assert len(calls) == 2


def whole_block(**keywords):
    return Block(D, **{"attention": SoftmaxAttention(D, 3), "feedforward": FeedForward(D, 20), **keywords}, dropout=0.2)


def test_layers_run_several_blocks_in_one_call(calls):
    torch.manual_seed(1)
    stack = whole_block(attention=SuperpositionStackAttention(D, 3))
    layers = Layers([whole_block(), whole_block(feedforward=None), stack, whole_block()], torch.nn.LayerNorm(D))
    x, lengths = examples(torch.float32), torch.tensor([9, 4, 2])
    found = []
    for apply in (lambda: layers(x, lengths), lambda: layers.hidden_states(x, lengths)):  # the latter block by block
        torch.manual_seed(2)
        y = apply()
        found.append((y, *torch.autograd.grad(y.square().sum(), [x, *layers.parameters()])))
    assert calls == [3, 1, 2, 1, 1, 1, 1, 1, 1]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("part", ["block", "residual"])
def test_hooks_of_a_block_are_called(part, calls):
    layers, seen = Layers([whole_block(), whole_block(), whole_block()]), []
    module = layers.blocks[1] if part == "block" else layers.blocks[1].feedforward
    module.register_forward_hook(lambda *_: seen.append(1))
    layers(examples(torch.float32))
    assert seen
    assert calls == [2, 1, 1, 2]


def test_a_wrong_width_is_refused_by_the_modules():
    with pytest.raises(RuntimeError, match="normalized_shape"):
        attention()(torch.zeros(2, 3, 7))
