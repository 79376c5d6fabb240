"""What is particular to hard attention: one-hot in evaluation, draws in training, and weights to train with."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from structattn.attention import (
    AttendingLayer,
    CrossHardAttention,
    CrossSoftmaxAttention,
    CrossTwoStreamAttention,
    HardAttention,
    SoftmaxAttention,
    Streams,
    TwoStreamAttention,
)
from structattn.attention.hard import set_temperature
from structattn.attention.positions import RelativePositions
from structattn.attention.projections import concatenate_heads, split_heads
from structattn.operators.receptive_field import receptive_field, receptive_field_size

LENGTHS = torch.tensor([7, 3, 0])


def example(dtype=torch.float64):
    return torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def hard(**options):
    torch.manual_seed(2)
    return HardAttention(6, 2, **options).double()


def softmax_twin(layer, **options):
    """Softmax attention with the same weights."""
    twin = SoftmaxAttention(6, 2, **options).double()
    twin.load_state_dict(layer.state_dict())
    return twin


def one_hot(weights):
    """1 at the largest weight of each row; zeros where all are."""
    return F.one_hot(weights.argmax(-1), weights.shape[-1]) * (weights.sum(-1, keepdim=True) > 0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", [None, RelativePositions])
def test_evaluation_is_softmax_attention_with_one_hot_weights(causal, positions):
    made = None if positions is None else positions(6, 2)
    layer = hard(causal=causal, positions=made).eval()
    twin, x = softmax_twin(layer, causal=causal, positions=copy.deepcopy(made)), example()
    soft = twin.explain(x, LENGTHS)
    hidden = (torch.arange(7) >= LENGTHS[:, None])[..., None]
    _, _, value = split_heads(twin.projection(x.masked_fill(hidden, 0)), 2, parts=3)
    read = concatenate_heads(one_hot(soft.weights).double() @ value)
    expected = twin.output(read).masked_fill(hidden, 0)
    torch.testing.assert_close(layer(x, LENGTHS), expected)
    record = layer.explain(x, LENGTHS)
    assert torch.equal(record.weights, one_hot(soft.weights))
    torch.testing.assert_close(record.details["probabilities"].transpose(1, 2), soft.weights)


def test_cross_evaluation_is_softmax_attention_with_one_hot_weights():
    torch.manual_seed(2)
    layer, twin = CrossHardAttention(6, 2).eval(), CrossSoftmaxAttention(6, 2)
    twin.load_state_dict(layer.state_dict())
    x, memory = torch.randn(3, 5, 6), torch.randn(3, 7, 6)
    weights = one_hot(twin.explain(x, memory, None, LENGTHS).weights).float()
    _, value = split_heads(twin.memory(memory), 2, parts=2)
    expected = twin.output(concatenate_heads(weights @ value))
    torch.testing.assert_close(layer(x, memory, None, LENGTHS), expected)


def test_equal_scores_choose_the_first():
    layer = hard(causal=False).eval()
    with torch.no_grad():
        layer.projection.weight[:12] = 0  # queries and keys
        layer.projection.bias[:12] = 0
    assert (layer.explain(example()).weights[..., 0] == 1).all()


@pytest.mark.parametrize("straight_through", [False, True])
def test_training_draws_and_evaluation_does_not(straight_through):
    layer, x = hard(straight_through=straight_through), example()
    assert not torch.equal(layer(x), layer(x))
    torch.manual_seed(0)
    first = layer(x)
    torch.manual_seed(0)
    assert torch.equal(layer(x), first)
    state = layer.initial_state(3)
    for t in range(3):
        _, state = layer.step(x[:, t], state)
    assert not torch.equal(layer.step(x[:, 3], state)[0], layer.step(x[:, 3], state)[0])
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_draws_follow_the_probabilities():
    layer, x = hard(), example()[:1]
    probabilities = layer.explain(x).details["probabilities"].transpose(1, 2)
    drawn = one_hot(layer.attend(x.expand(2000, -1, -1))[1]).double().mean(0)
    assert (drawn - probabilities[0]).abs().max() < 5 * 0.5 / math.sqrt(2000)
    assert (drawn.triu(1) == 0).all()


def test_temperature():
    x = example()
    cold, warm = hard(temperature=1e-3).attend(x)[1], hard(temperature=1e6).attend(x)[1]
    assert (cold.max(-1).values > 0.9).double().mean() > 0.95
    even = torch.ones(7, 7, dtype=torch.float64).tril() / torch.arange(1, 8)[:, None]
    torch.testing.assert_close(warm, even.expand_as(warm), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [HardAttention, CrossHardAttention, TwoStreamAttention, CrossTwoStreamAttention])
def test_without_noise_training_approaches_evaluation_as_the_temperature_falls(kind):
    torch.manual_seed(2)
    layer = nn.ModuleList([kind(6, 2, noise=False).double()])
    x = Streams(example(), example() + 1) if "Two" in kind.__name__ else example()
    arguments = (x, x) if "Cross" in kind.__name__ else (x,)
    different = []
    for temperature in (1.0, 0.05, 1e-9):
        set_temperature(layer, temperature)
        trained, again, used = (layer.train(mode)[0](*arguments) for mode in (True, True, False))
        torch.testing.assert_close(trained, again, rtol=0, atol=0)
        different.append(max(float((a - b).detach().abs().max()) for a, b in zip(trained, used, strict=True)))
    assert different[0] > different[1] > different[2]
    assert different[2] < 1e-9


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("straight_through", [False, True])
def test_attending_gives_the_output_and_its_weights(training, straight_through):
    layer, x = hard(straight_through=straight_through).train(training), example()
    assert isinstance(layer, AttendingLayer)
    before = dict(vars(layer))
    torch.manual_seed(0)
    y, weights = layer.attend(x, LENGTHS)
    torch.manual_seed(0)
    assert torch.equal(layer(x, LENGTHS), y)
    assert vars(layer) == before
    hidden = (torch.arange(7) >= LENGTHS[:, None])[..., None]
    _, _, value = split_heads(layer.projection(x.masked_fill(hidden, 0)), 2, parts=3)
    torch.testing.assert_close(layer.output(concatenate_heads(weights @ value)).masked_fill(hidden, 0), y)
    if straight_through or not training:
        torch.testing.assert_close(weights, one_hot(weights).double())


@pytest.mark.parametrize("straight_through", [False, True])
def test_the_size_of_receptive_fields_can_be_trained_down(straight_through):
    layers = [hard(straight_through=straight_through), hard(straight_through=straight_through)]
    layers[1].load_state_dict({name: value.flip(0) for name, value in layers[0].state_dict().items()})
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    optimizer, x, sizes = torch.optim.Adam(parameters, lr=0.05), example(), []
    for step in range(60):
        torch.manual_seed(step % 5)
        h, weights = layers[0].attend(x, LENGTHS)
        fields = receptive_field([weights, layers[1].attend(x + h, LENGTHS)[1]], lengths=LENGTHS)
        size = receptive_field_size(fields, lengths=LENGTHS)
        optimizer.zero_grad()
        size.backward()
        optimizer.step()
        sizes.append(size.item())
    assert sum(sizes[-5:]) < 0.8 * sum(sizes[:5])


@pytest.mark.parametrize("straight_through", [False, True])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_later_nan_reaches_nobody_in_training_either(straight_through, poison):
    layer, x = hard(straight_through=straight_through), example().requires_grad_()
    torch.manual_seed(0)
    clean = layer(x)
    (expected,) = torch.autograd.grad(clean.sum(), x)
    with torch.no_grad():
        x[0, 5] = poison
    torch.manual_seed(0)
    y = layer(x)
    assert torch.equal(y[0, :5], clean[0, :5])
    assert y[0, 5:].isnan().all()
    assert torch.equal(y[1:], clean[1:])
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0][1:], expected[1:])


@pytest.mark.parametrize("training", [True, False])
def test_low_precision(training):
    layer, x = hard().to(torch.bfloat16).train(training), example(torch.bfloat16)
    y, weights = layer.attend(x)
    assert y.dtype == weights.dtype == torch.bfloat16
    assert y.isfinite().all()


def test_refusals():
    with pytest.raises(ValueError, match="4 heads do not divide d_model=6"):
        HardAttention(6, 4)
    with pytest.raises(ValueError, match="causal=False"):
        HardAttention(6, 2, causal=False).initial_state(1)
    with pytest.raises(ValueError, match="temperature=-1"):
        HardAttention(6, 2, temperature=-1)
