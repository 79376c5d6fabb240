"""Attention over two streams, within a sequence and to a memory."""

import math
from functools import partial

import pytest
import torch

from structattn.attention import (
    CrossHardAttention,
    CrossSoftmaxAttention,
    CrossTwoStreamAttention,
    HardAttention,
    SoftmaxAttention,
    Streams,
    TwoStreamAttention,
)
from structattn.attention.contract import CHECKS, CROSS_CHECKS, check_gradients
from structattn.attention.positions import AlibiPositions, RelativePositions, RotaryPositions
from structattn.attention.projections import concatenate_heads, split_heads

WIDTH, HEADS, TIME, SOURCE = 6, 3, 5, 7
POSITIONS = {
    "none": lambda: None,
    "rotary": lambda: RotaryPositions(2),
    "alibi": lambda: AlibiPositions(HEADS),
    "relative": lambda: RelativePositions(WIDTH, HEADS),
}
LENGTHS, MEMORY_LENGTHS = torch.tensor([5, 3, 0]), torch.tensor([4, 7, 6])


def prepared(layer):
    layer = layer.double().eval()
    generator = torch.Generator().manual_seed(5)
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7, generator=generator)
    return layer


def streams(batch=3, time=TIME, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return Streams(*(torch.randn(batch, time, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)))


@pytest.fixture(params=POSITIONS.values(), ids=POSITIONS.keys())
def layer(request):
    return prepared(TwoStreamAttention(WIDTH, HEADS, positions=request.param()))


@pytest.fixture
def cross():
    return prepared(CrossTwoStreamAttention(WIDTH, HEADS))


def together(x):
    return torch.cat(x, dim=-1)


class Joined(torch.nn.Module):
    """A layer of two streams as one of a single stream of twice the width."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *given):
        return together(self.layer(*map(apart, given)))

    def initial_state(self, *given):
        return self.layer.initial_state(*map(apart, given))

    def step(self, x_t, state):
        y_t, state = self.layer.step(apart(x_t), state)
        return together(y_t), state

    def explain(self, *given):
        return self.layer.explain(*map(apart, given))


def apart(given):
    """The streams of a sequence or memory; lengths and sizes of batches as they are."""
    if not torch.is_tensor(given) or not given.is_floating_point():
        return given
    return Streams(*(stream.contiguous() for stream in given.chunk(2, -1)))


def past(lengths, count):
    return (torch.arange(count) >= lengths[:, None])[..., None]


def twins(layer):
    """The softmax layer and the hard one of which the layer is made; the hard one's values are to be made of h."""
    options = {"positions": layer.positions} if hasattr(layer, "positions") else {}
    soft_class, hard_class = (
        (SoftmaxAttention, HardAttention) if options else (CrossSoftmaxAttention, CrossHardAttention)
    )
    soft, hard = soft_class(WIDTH, HEADS, **options).double(), hard_class(WIDTH, HEADS, **options).double().eval()
    own = layer.state_dict()
    with torch.no_grad():
        for twin, output in ((soft, layer.syntactic_output), (hard, layer.semantic_output)):
            twin.load_state_dict({**twin.state_dict(), **{n: v for n, v in own.items() if n in twin.state_dict()}})
            twin.output.load_state_dict(output.state_dict())
    return soft, hard


def values_of(twin, layer, content):
    """Let the hard twin read these contents, whatever it is given."""
    name = "projection" if hasattr(twin, "projection") else "memory"
    into = getattr(twin, name)

    class Replaced(torch.nn.Module):
        weight = into.weight

        def forward(self, x):
            return torch.cat([into(x)[..., :-WIDTH], layer.content(content)], -1)

    setattr(twin, name, Replaced())


def test_each_stream_is_the_layer_of_one_stream_with_the_scores_of_g(layer):
    x = streams()
    soft, hard = twins(layer)
    values_of(hard, layer, x.semantic)
    y = layer(x)
    torch.testing.assert_close(y.syntactic, soft(x.syntactic))
    torch.testing.assert_close(y.semantic, hard(x.syntactic))
    record = layer.explain(x)
    torch.testing.assert_close(record.weights, hard.explain(x.syntactic).weights)
    torch.testing.assert_close(record.details["probabilities"].transpose(1, 2), soft.explain(x.syntactic).weights)


def test_cross_attention_likewise(cross):
    x, memory = streams(), streams(time=SOURCE, seed=2)
    soft, hard = twins(cross)
    values_of(hard, cross, memory.semantic)
    y = cross(x, memory, None, MEMORY_LENGTHS)
    torch.testing.assert_close(y.syntactic, soft(x.syntactic, memory.syntactic, None, MEMORY_LENGTHS))
    torch.testing.assert_close(y.semantic, hard(x.syntactic, memory.syntactic, None, MEMORY_LENGTHS))
    record = cross.explain(x, memory, None, MEMORY_LENGTHS)
    expected = soft.explain(x.syntactic, memory.syntactic, None, MEMORY_LENGTHS).weights
    torch.testing.assert_close(record.details["probabilities"].transpose(1, 2), expected)


@pytest.mark.parametrize("check", CHECKS)
def test_contract(layer, check):
    checks = CHECKS | {"gradients": partial(check_gradients, fast=True)}
    checks[check](Joined(layer), together(streams(time=7)))


@pytest.mark.parametrize("check", CROSS_CHECKS)
def test_cross_contract(cross, check):
    checks = CROSS_CHECKS | {"gradients": partial(check_gradients, fast=True)}
    checks[check](Joined(cross), together(streams()), together(streams(time=SOURCE, seed=2)))


@pytest.mark.parametrize("training", [True, False])
def test_g_never_sees_h(layer, cross, training):
    x, memory = streams(), streams(time=SOURCE, seed=2)
    for made, given in ((layer.train(training), ()), (cross.train(training), (memory,))):
        leaves = [tensor.requires_grad_() for tensor in (x.semantic, *(stream.semantic for stream in given))]
        y = made(x, *given)
        found = torch.autograd.grad(y.syntactic.sum(), leaves, allow_unused=True)
        assert all(gradient is None or (gradient == 0).all() for gradient in found)
        nothing = [Streams(stream.syntactic, torch.full_like(stream.semantic, math.nan)) for stream in (x, *given)]
        assert torch.equal(made(*nothing).syntactic, y.syntactic)


def test_g_learns_from_h_in_training_only(layer, cross):
    x, memory = streams(), streams(time=SOURCE, seed=2)
    for made, given in ((layer, ()), (cross, (memory,))):
        y = made.train()(x, *given)
        weight = made.query.weight if given else made.projection.weight
        (gradient,) = torch.autograd.grad(y.semantic.sum(), weight, materialize_grads=True)
        assert (gradient[:WIDTH] != 0).any()
        (gradient,) = torch.autograd.grad(
            made.eval()(x, *given).semantic.sum(), weight, allow_unused=True, materialize_grads=True
        )
        assert (gradient == 0).all()


def test_the_memory_of_h_alone_is_what_cross_attention_puts_into_h(cross):
    x, memory = streams(), streams(time=SOURCE, seed=2)
    changed = Streams(x.syntactic, x.semantic + 1)
    for result, expected in zip(cross(changed, memory), cross(x, memory), strict=True):
        assert torch.equal(result, expected)


def test_attending_gives_the_output_and_its_weights(layer, cross):
    x, memory = streams(), streams(time=SOURCE, seed=2)
    for made, given in ((layer, (x, LENGTHS)), (cross, (x, memory, LENGTHS, MEMORY_LENGTHS))):
        for training in (True, False):
            made.train(training)
            torch.manual_seed(0)
            y, weights = made.attend(*given)
            torch.manual_seed(0)
            assert torch.equal(together(made(*given)), together(y))
            assert weights.requires_grad == training
            read = x.map(lambda stream: stream.masked_fill(past(LENGTHS, TIME), 0))
            if len(given) > 2:
                read = memory.map(lambda stream: stream.masked_fill(past(MEMORY_LENGTHS, SOURCE), 0))
            (content,) = split_heads(made.content(read.semantic), HEADS)
            expected = made.semantic_output(concatenate_heads(weights @ content)).masked_fill(past(LENGTHS, TIME), 0)
            torch.testing.assert_close(y.semantic, expected)


@pytest.mark.quick("rotary")
def test_survives_compilation(layer, cross):
    x, memory = streams(), streams(time=SOURCE, seed=2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(together(compiled(x, LENGTHS)), together(layer(x, LENGTHS)))
    compiled = torch.compile(cross, fullgraph=True, backend="aot_eager")
    expected = together(cross(x, memory, LENGTHS, MEMORY_LENGTHS))
    torch.testing.assert_close(together(compiled(x, memory, LENGTHS, MEMORY_LENGTHS)), expected)


def test_refusals():
    with pytest.raises(ValueError, match="4 heads do not divide d_model=6"):
        TwoStreamAttention(6, 4)
    with pytest.raises(ValueError, match="causal=False"):
        TwoStreamAttention(6, 2, causal=False).initial_state(1)
