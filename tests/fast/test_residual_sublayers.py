"""The residual sublayers by the kernel, compared with the modules: values, all gradients and random numbers."""

import pytest
import torch

from structattn.attention import NondeterministicStackAttention, SoftmaxAttention
from structattn.fast.residual_sublayers import (
    AttentionSublayer,
    FeedForwardSublayer,
    StackSublayer,
    StackWeights,
    SublayerWeights,
    residual_sublayers,
)
from structattn.models import FeedForward, Residual
from structattn.operators.common.kernels import has_kernel

EPSILON = 1e-3
# batch, time, d_model, heads, d_ff: whole vectors or not, one or none of something, more rows than fit into a block
SIZES = [
    (3, 7, 4, 2, 6),
    (10, 61, 32, 4, 64),
    (2, 63, 28, 4, 56),
    (1, 1, 64, 8, 256),
    (2, 13, 8, 8, 3),
    (19, 2, 17, 1, 16),
    (0, 4, 8, 2, 5),
    (2, 0, 8, 2, 5),
]
TOLERANCES = {torch.float64: {"rtol": 1e-10, "atol": 1e-11}, torch.float32: {"rtol": 1e-3, "atol": 2e-4}}
each_precision = pytest.mark.parametrize("dtype", TOLERANCES)
each_size = pytest.mark.parametrize("sizes", SIZES, ids=str)
each_rate = pytest.mark.parametrize("rate", [0.0, 0.3])


def drawn(*shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()


def weights_of(d, outputs, inputs, dtype, biases=True):
    shift, first_bias, second_bias = (
        drawn(size, dtype=dtype, seed=seed) if biases else None for seed, size in enumerate((d, outputs, d))
    )
    first, second = drawn(outputs, d, dtype=dtype, seed=3), drawn(d, inputs, dtype=dtype, seed=4)
    with torch.no_grad():
        first /= d**0.5
        second /= inputs**0.5
    return SublayerWeights(drawn(d, dtype=dtype, seed=5), shift, first, first_bias, second, second_bias)


def residual_of(layer, weights, rate, **parameters):
    """The sublayer as a module, with the given tensors as its parameters."""
    residual = Residual(layer, torch.nn.LayerNorm(len(weights.scale), EPSILON), dropout=rate)
    first, second = (each for each in layer.children() if isinstance(each, torch.nn.Linear))
    residual.norm._parameters.update(weight=weights.scale, bias=weights.shift)
    first._parameters.update(weight=weights.first, bias=getattr(weights, "first_bias", None))
    second._parameters.update(weight=weights.second, bias=getattr(weights, "second_bias", None))
    layer._parameters.update(parameters)
    return residual


def assert_agree(fast, modules, tensors, dtype):
    """Compare outputs, all gradients, and the state of the generator."""
    present = [tensor for tensor in tensors if tensor is not None]
    found = []
    for call in (fast, modules):
        torch.manual_seed(3)
        y = call()
        cotangent = drawn(*y.shape, dtype=dtype, seed=9).detach()
        gradients = torch.autograd.grad(y, present, cotangent, materialize_grads=True)
        found.append((y, *gradients, torch.get_rng_state()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCES[dtype])


def attention_pair(sizes, dtype, causal, rate, lengths=None, biases=True):
    batch, time, d, heads, _ = sizes
    x, weights = drawn(batch, time, d, dtype=dtype), weights_of(d, 3 * d, d, dtype, biases)

    def fast():
        return residual_sublayers(x, [AttentionSublayer(weights, heads, causal, rate, rate, EPSILON)], lengths)

    residual = residual_of(SoftmaxAttention(d, heads, dropout=rate, causal=causal), weights, rate)
    return fast, lambda: residual(x, lengths), (x, *weights), dtype


def feedforward_pair(sizes, dtype, rate, biases=True):
    batch, time, d, _, units = sizes
    x, weights = drawn(batch, time, d, dtype=dtype), weights_of(d, units, units, dtype, biases)

    def fast():
        return residual_sublayers(x, [FeedForwardSublayer(weights, rate, rate, EPSILON)])

    residual = residual_of(FeedForward(d, units, rate), weights, rate)
    return fast, lambda: residual(x), (x, *weights), dtype


# batch, time, d_model, states, symbols, size of the vectors
STACK_SIZES = [
    (3, 7, 4, 2, 3, 5),
    (2, 18, 28, 1, 1, 1),
    (19, 2, 17, 3, 2, 3),
    (1, 1, 8, 2, 2, 2),
    (0, 4, 8, 2, 2, 2),
    (2, 0, 8, 2, 2, 2),
]


def stack_pair(sizes, dtype, rate, lengths=None, window=None, activation="sigmoid", **offsets):
    batch, time, d, states, symbols, m = sizes
    x = drawn(batch, time, d, dtype=dtype)
    readings = states * symbols * m
    outputs = states * symbols * (2 * states * symbols + states) + m
    scale, shift, first, _, second, _ = weights_of(d, outputs, readings, dtype)
    weights = StackWeights(scale, shift, first, second, drawn(m, dtype=dtype, seed=8))

    options = {"pushed_activation": activation, "window": window, **offsets}
    layer = NondeterministicStackAttention(d, states, symbols, m, **options)

    def fast():
        options = window, activation, layer.transition_offsets(), rate, EPSILON
        sublayer = StackSublayer(weights, states, symbols, *options)
        return residual_sublayers(x, [sublayer], lengths)

    residual = residual_of(layer, weights, rate, bottom=weights.bottom)
    return fast, lambda: residual(x, lengths), (x, *weights), dtype


@each_precision
@pytest.mark.parametrize("sizes", STACK_SIZES, ids=str)
@each_rate
def test_stack_equals_the_modules(sizes, dtype, rate):
    assert_agree(*stack_pair(sizes, dtype, rate))


@each_precision
@pytest.mark.parametrize(
    ("window", "activation", "offsets"),
    [(2, "sigmoid", {}), (None, "exp", {"pop_offset": 1.5}), (3, "sigmoid", {"pop_offset": -1, "phase_offset": 2})],
)
def test_stack_with_lengths_and_options_equals_the_modules(dtype, window, activation, offsets):
    assert_agree(*stack_pair(STACK_SIZES[0], dtype, 0.3, torch.tensor([5, 0, 7]), window, activation, **offsets))


@pytest.mark.covering(2)
@each_precision
@each_size
@pytest.mark.parametrize("causal", [True, False])
@each_rate
def test_attention_equals_the_modules(sizes, dtype, causal, rate):
    assert_agree(*attention_pair(sizes, dtype, causal, rate))


@each_precision
@each_rate
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("biases", [True, False])
def test_attention_with_lengths_equals_the_modules(dtype, rate, causal, biases):
    assert_agree(*attention_pair((4, 9, 12, 3, 0), dtype, causal, rate, torch.tensor([9, 0, 1, 6]), biases))


@pytest.mark.covering(2)
@each_precision
@each_size
@each_rate
@pytest.mark.parametrize("biases", [True, False])
def test_feedforward_equals_the_modules(sizes, dtype, rate, biases):
    assert_agree(*feedforward_pair(sizes, dtype, rate, biases))


@pytest.mark.parametrize("pair", [attention_pair, feedforward_pair])
def test_gradcheck(pair):
    arguments = ((2, 5, 6, 2, 7), torch.float64, *([True] if pair is attention_pair else []), 0.0)
    fast, _, tensors, _ = pair(*arguments)
    assert torch.autograd.gradcheck(lambda *_: fast(), tensors)


@pytest.mark.parametrize("causal", [True, False])
def test_padding_has_no_influence(causal):
    """Not even NaN: it stays where it is."""
    fast, _, (x, *weights), _ = attention_pair((3, 5, 8, 2, 0), torch.float32, causal, 0.2, torch.tensor([2, 5, 0]))
    inside = torch.arange(5) < torch.tensor([2, 5, 0])[:, None]

    def outcome():
        torch.manual_seed(0)
        y = fast()
        return y.detach()[inside], *torch.autograd.grad(y[inside].square().sum(), [x, *weights])

    clean = outcome()
    with torch.no_grad():
        x[~inside] = torch.nan
    for one, other in zip(clean, outcome(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads):
    pairs = attention_pair(SIZES[1], torch.float32, True, 0.1), feedforward_pair(SIZES[1], torch.float32, 0.1)
    before = torch.get_num_threads()

    def outcome(count):
        torch.set_num_threads(count)
        torch.manual_seed(0)
        ys = [fast() for fast, *_ in pairs]
        gradients = [torch.autograd.grad(y.sum(), pair[2]) for y, pair in zip(ys, pairs, strict=True)]
        return [*ys, *gradients[0], *gradients[1]]

    try:
        for one, other in zip(outcome(1), outcome(threads), strict=True):
            assert torch.equal(one, other)
    finally:
        torch.set_num_threads(before)


def test_inputs_may_have_any_strides():
    fast, _, (x, *weights), dtype = feedforward_pair((3, 4, 8, 2, 5), torch.float64, 0.0)
    expected = fast()
    strided = x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    turned = SublayerWeights(*(weight.detach().t().contiguous().t() for weight in weights))
    assert not strided.is_contiguous()
    y = residual_sublayers(strided, [FeedForwardSublayer(turned, epsilon=EPSILON)])
    torch.testing.assert_close(y, expected)
    cotangent = torch.ones(()).expand(y.shape).to(dtype)
    torch.testing.assert_close(torch.autograd.grad(y, strided, cotangent), torch.autograd.grad(expected, x, cotangent))


@pytest.mark.parametrize("pair", [attention_pair, feedforward_pair, stack_pair])
def test_double_backward_is_refused(pair):
    sizes = STACK_SIZES[0] if pair is stack_pair else SIZES[0]
    fast, _, (x, *_), _ = pair(sizes, torch.float64, *([True] if pair is attention_pair else []), 0.0)
    (gradient,) = torch.autograd.grad(fast().square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported by the CPU kernel"):
        gradient.sum().backward()


def test_dropout_rate_and_seed():
    fast, *_ = feedforward_pair((20, 50, 32, 1, 8), torch.float32, 0.4)
    torch.manual_seed(0)
    first, second = fast(), fast()
    torch.manual_seed(0)
    assert torch.equal(fast(), first)
    assert not torch.equal(first, second)


def test_wrong_lengths_are_refused():
    with pytest.raises(ValueError, match="lengths range from 3 to 6; expected 0 to 5"):
        attention_pair((2, 5, 8, 2, 0), torch.float32, True, 0.0, torch.tensor([6, 3]))[0]()


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2, 0])])
def test_a_sequence_equals_its_sublayers_one_by_one(lengths, biases):
    x = drawn(3, 5, 8, dtype=torch.float32)
    weights = [weights_of(8, 24, 8, torch.float32, biases), weights_of(8, 9, 9, torch.float32, biases)]
    sublayers = [AttentionSublayer(weights[0], 2, True, 0.2, 0.3), FeedForwardSublayer(weights[1], 0.1, 0.2)]
    sublayers += [FeedForwardSublayer(weights[1]), AttentionSublayer(weights[0], 4, False)]
    parameters = [weight for own in weights for weight in own if weight is not None]

    def one_by_one():
        y = x
        for sublayer in sublayers:
            y = residual_sublayers(y, [sublayer], lengths)
        return y

    found = []
    for call in (lambda: residual_sublayers(x, sublayers, lengths), one_by_one):
        torch.manual_seed(4)
        y = call()
        found.append((y, *torch.autograd.grad(y.square().sum(), [x, *parameters])))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)  # sums of gradients of shared weights


def test_heads_that_do_not_divide_the_width_are_refused():
    weights = SublayerWeights(torch.ones(8), torch.ones(8), torch.ones(24, 8), None, torch.ones(8, 8), None)
    with pytest.raises(ValueError, match="3 heads do not divide a width of 8"):
        AttentionSublayer(weights, num_heads=3, causal=True).options()


def test_gradients_of_weights_that_are_used_twice():
    """With and without a graph of their own."""
    weights = SublayerWeights(
        *(drawn(*shape, dtype=torch.float64) for shape in ((4,), (4,), (6, 4), (6,), (4, 6), (4,)))
    )
    sublayer, x = FeedForwardSublayer(weights), drawn(2, 3, 4, dtype=torch.float64)
    y = residual_sublayers(residual_sublayers(x, [sublayer]), [sublayer]).square().sum()
    expected = torch.autograd.grad(y, weights, retain_graph=True)
    for found, wanted in zip(torch.autograd.grad(y, weights, create_graph=True), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.skipif(not has_kernel("ResidualSequence"), reason="the kernels were not built")
def test_batches_of_gradients_are_refused_by_name():
    weights = weights_of(4, 6, 6, torch.float32)
    x = drawn(2, 3, 4, dtype=torch.float32)
    y = residual_sublayers(x, [FeedForwardSublayer(weights)] * 2)
    with pytest.raises(RuntimeError, match=r"is_grads_batched.*torch\.func\.jacrev"):
        torch.autograd.grad(y, x, torch.randn(5, *y.shape), is_grads_batched=True)
