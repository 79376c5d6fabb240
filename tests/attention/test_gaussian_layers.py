"""What is particular to the layers with hard-coded heads."""

import pytest
import torch
from torch.nn import functional as F

from structattn.attention import CrossGaussianAttention, GaussianAttention
from structattn.attention.contract import by_steps, require_same_steps
from structattn.attention.positions import AlibiPositions
from structattn.operators import gaussian_weights

WIDTH = 8
CROSS = {
    "cross": lambda: CrossGaussianAttention(WIDTH, [-1, 0, 1, 0], ratio=1.3),
    "learned head": lambda: CrossGaussianAttention(WIDTH, [-1, 0, 1], num_learned_heads=1, ratio=0.7, floor=False),
    "window": lambda: CrossGaussianAttention(WIDTH, [-1, 1], num_learned_heads=2, kernel="window"),
    "index": lambda: CrossGaussianAttention(WIDTH, [-1, 0], kernel="index", ratio=1.3),
}


@pytest.fixture(params=CROSS.values(), ids=CROSS.keys())
def cross(request):
    torch.manual_seed(5)
    return request.param().double()


def numbers(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def by_hand(layer, x, memory, causal, **options):
    """The layer's formula with dense weights for every head."""
    heads = layer.heads
    offsets, learned = heads.gaussians.offsets, heads.learned
    count = len(offsets) + (learned.num_heads if learned else 0)
    values = split(F.linear(memory, heads.value.weight), count)
    time, source = x.shape[1], memory.shape[1]
    weights = gaussian_weights(offsets, time, source, causal=causal, dtype=x.dtype, **options).expand(
        len(x), -1, -1, -1
    )
    if learned:
        query, key = (
            split(F.linear(y, m.weight), learned.num_heads) for y, m in ((x, learned.query), (memory, learned.key))
        )
        scores = query @ key.transpose(-1, -2) / (WIDTH / count) ** 0.5
        later = torch.ones(time, source, dtype=torch.bool).triu(1) & causal
        weights = torch.cat([weights, scores.masked_fill(later, -torch.inf).softmax(-1)], dim=1)
    return F.linear((weights @ values).transpose(1, 2).flatten(2), layer.output.weight), weights


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("learned", [0, 2])
@pytest.mark.parametrize("kernel", ["full", "window", "index"])
def test_equals_its_formula(causal, learned, kernel):
    layer = GaussianAttention(WIDTH, [-1, 1], num_learned_heads=learned, kernel=kernel, causal=causal).double()
    x = numbers(3, 9, WIDTH)
    y, weights = by_hand(layer, x, x, causal, kernel=kernel)
    torch.testing.assert_close(layer(x), y)
    record = layer.explain(x)
    assert record.mechanism == "gaussian"
    torch.testing.assert_close(record.weights, weights)


def test_cross_equals_its_formula(cross):
    x, memory = numbers(3, 9, WIDTH), numbers(3, 12, WIDTH, seed=2)
    g = cross.heads.gaussians
    y, weights = by_hand(cross, x, memory, False, ratio=g.ratio, floor=g.floor, kernel=g.kernel)
    torch.testing.assert_close(cross(x, memory), y)
    torch.testing.assert_close(cross.explain(x, memory).weights, weights)


@pytest.mark.parametrize(("hard", "learned"), [(4, 0), (2, 2), (1, 3)])
def test_numbers_of_parameters(hard, learned):
    expected = 2 * WIDTH**2 + learned * 2 * WIDTH**2 // 4
    for layer in (GaussianAttention, CrossGaussianAttention):
        assert sum(p.numel() for p in layer(WIDTH, [0] * hard, num_learned_heads=learned).parameters()) == expected


@torch.no_grad()
def test_a_step_keeps_the_last_few_values_only():
    layer, x = GaussianAttention(WIDTH, [-1, 0]), numbers(2, 300, WIDTH).float()
    whole, state = layer(x), layer.initial_state(2)
    for t, x_t in enumerate(x.unbind(1)):
        y_t, state = layer.step(x_t, state)
        torch.testing.assert_close(y_t, whole[:, t])
    assert state.recent.num_steps == 15
    assert len(state.recent.pool.tensors[0]) < 2 * 300  # rows past the last few are given up, if not at once
    assert state.learned is None


def test_a_layer_that_sees_later_positions():
    layer, x = GaussianAttention(WIDTH, [-1, 1], num_learned_heads=2, causal=False).double(), numbers(3, 7, WIDTH)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, 0].sum(), x)
    assert (gradient[:, 1] != 0).any()
    lengths = torch.tensor([7, 3, 0])
    together = layer(x, lengths)
    for b, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[b, :length], layer(x[b : b + 1, :length])[0])
        assert (together[b, length:] == 0).all()
    with pytest.raises(ValueError, match="causal=False"):
        layer.initial_state(1)


def test_dropout_acts_on_learned_heads_in_training():
    x = numbers(2, 5, WIDTH).float()
    for learned, alike in ((0, True), (2, False)):
        layer = GaussianAttention(WIDTH, [-1, 0], num_learned_heads=learned, dropout=0.5)
        assert torch.equal(layer(x), layer(x)) == alike
        layer.eval()
        assert torch.equal(layer(x), layer(x))


def test_positions_act_on_learned_heads():
    layer = GaussianAttention(WIDTH, [-1, 0], num_learned_heads=2, positions=AlibiPositions(2))
    x = numbers(2, 5, WIDTH).float()
    whole = layer(x)
    layer.heads.learned.positions = None
    assert not torch.equal(layer(x), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offsets": [0, 0, 0]}, "3 heads do not divide d_model=8"),
        ({"offsets": []}, r"offsets=\(\)"),
        ({"offsets": [0], "num_learned_heads": -1}, "num_learned_heads=-1"),
        ({"offsets": [0], "sigma": -1.0}, "sigma=-1.0"),
        ({"offsets": [0], "kernel": "conv"}, "kernel='conv'"),
    ],
)
def test_refusals(options, message):
    for layer in (GaussianAttention, CrossGaussianAttention):
        with pytest.raises(ValueError, match=message):
            layer(WIDTH, **options)


@pytest.mark.parametrize("ends", [None, (12, 5, 0)])
def test_cross_step_by_step_equals_the_whole(cross, ends):
    ends = None if ends is None else torch.tensor(ends)
    x, memory = numbers(3, 9, WIDTH).requires_grad_(), numbers(3, 12, WIDTH, seed=2).requires_grad_()
    require_same_steps(
        {"x": x, "memory": memory, **dict(cross.named_parameters())},
        cross(x, memory, memory_lengths=ends),
        lambda: by_steps(cross, cross.initial_state(memory, ends), x),
    )
