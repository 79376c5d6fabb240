"""Hard attention: the definition written once more, the law of the draws, and the contract's corners."""

import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from structattn.operators import hard_attention
from structattn.operators.hard_attention.gumbel_softmax import gumbel_noise

SHAPES = [(2, 3, 1, 4, 4), (2, 1, 2, 7, 1), (1, 2, 7, 1, 9), (1, 1, 63, 63, 8), (1, 1, 63, 2, 5)]  # B, H, T, S, d
MODES = {
    "argmax": {},
    "soft": {"sample": True},
    "straight through": {"sample": True, "straight_through": True},
    "no noise": {"sample": True, "noise": False},
    "straight through, no noise": {"sample": True, "straight_through": True, "noise": False},
    "cold": {"sample": True, "temperature": 0.0},
}


@pytest.fixture(params=MODES.values(), ids=MODES.keys())
def mode(request):
    return request.param


def inputs(batch, heads, queries, keys, size, dtype=torch.float64, hide=0.0, scale=1.0):
    generator = torch.Generator().manual_seed(batch + 10 * queries + keys)
    scores = scale * torch.randn(batch, heads, queries, keys, generator=generator, dtype=torch.float64)
    hidden = torch.rand(scores.shape, generator=generator) < hide
    values = torch.randn(batch, heads, keys, size, generator=generator, dtype=torch.float64)
    return [tensor.to(dtype).requires_grad_() for tensor in (scores.masked_fill(hidden, -torch.inf), values)]


def outcome(tensors, **options):
    """Readings, choices, and the gradients of scores and values, zeros where there are none."""
    torch.manual_seed(3)
    readings, choices = hard_attention(*tensors, **options)
    cotangent = torch.linspace(-1, 1, readings.numel(), dtype=readings.dtype).sin()
    cotangent = cotangent.view(readings.shape).to(readings.device)
    gradients = torch.autograd.grad(readings, tensors, cotangent, allow_unused=True, materialize_grads=True)
    return readings, choices, *gradients


def by_hand(scores, values, temperature=1.0, sample=False, straight_through=False, noise=True):
    """One query at a time, with Python's numbers."""
    torch.manual_seed(3)
    added = gumbel_noise(scores) if sample and noise else torch.zeros_like(scores)
    readings, choices = [], []
    for b, h, t in itertools.product(*map(range, scores.shape[:3])):
        seen = [s for s in range(scores.shape[3]) if scores[b, h, t, s] != -torch.inf]
        sums = {s: scores[b, h, t, s] + added[b, h, t, s] for s in seen}
        best = max(seen, key=lambda s, sums=sums: sums[s].item(), default=-1)
        weights = {best: torch.ones((), dtype=scores.dtype)} if seen else {}
        if sample and temperature > 0 and seen:
            powers = {s: torch.exp((sums[s] - sums[best].detach()) / temperature) for s in seen}
            soft = {s: power / sum(powers.values()) for s, power in powers.items()}
            weights = {s: soft[s] + (float(s == best) - soft[s].detach()) * straight_through for s in seen}
        zero = torch.zeros(values.shape[3], dtype=values.dtype) + 0 * values[b, h].sum()
        readings.append(sum((weight * values[b, h, s] for s, weight in weights.items()), zero))
        choices.append(best)
    return torch.stack(readings).view(*scores.shape[:3], -1), torch.tensor(choices).view(scores.shape[:3])


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_equals_the_definition(mode, dtype, shape, temperature):
    options = {"temperature": temperature} | mode
    tensors = inputs(*shape, dtype, hide=0.4)
    readings, choices, *gradients = outcome(tensors, **options)
    wanted, wanted_choices = by_hand(*tensors, **options)
    cotangent = torch.linspace(-1, 1, wanted.numel(), dtype=dtype).view(wanted.shape).sin()
    expected = torch.autograd.grad(wanted, tensors, cotangent, allow_unused=True, materialize_grads=True)
    assert torch.equal(choices, wanted_choices)
    assert readings.dtype == dtype
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for result, definition in zip([readings, *gradients], [wanted, *expected], strict=True):
        assert (result - definition).norm() <= tolerance * max(definition.norm(), 1.0)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_draws_follow_the_softmax(scale):
    scores = scale * torch.tensor([0.3, -1.0, 0.0, 1.2, -math.inf, -0.5])
    draws = 200_000
    torch.manual_seed(1)
    many = scores.expand(1, 1, draws, -1)
    _, choices = hard_attention(many, torch.zeros(1, 1, 6, 1), sample=True)
    found = torch.bincount(choices.flatten(), minlength=6).double()
    expected = draws * scores.double().softmax(-1)
    assert found[4] == 0
    seen = expected > 0
    chi_square = ((found - expected).square() / expected)[seen].sum()
    assert chi_square < 18.5  # the 0.999 quantile at 4 degrees of freedom
    torch.manual_seed(1)  # with the sign as it is printed, the draws follow another law
    printed = torch.bincount((scores - gumbel_noise(many[0, 0])).argmax(-1), minlength=6).double()
    assert ((printed - expected).square() / expected)[seen].sum() > 1000


def test_noise_is_gumbels_and_finite():
    torch.manual_seed(1)
    noise = gumbel_noise(torch.empty(1_000_000))
    assert noise.isfinite().all()
    assert abs(float(noise.double().mean()) - 0.5772156649) < 5 * math.pi / math.sqrt(6e6)
    assert abs(float(noise.double().var()) - math.pi**2 / 6) < 0.03


@pytest.mark.parametrize("number", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_finite_at_both_ends(monkeypatch, number, dtype):
    monkeypatch.setattr(torch, "rand", lambda shape, **options: torch.full(shape, number, **options))
    assert gumbel_noise(torch.empty(3, dtype=dtype)).isfinite().all()


@pytest.mark.covering(1)
@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-45, 1e-38, 1e-10, 1e-3, 1.0, 1e10, 1e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-40, 88.0, 1e4, 1e38])
def test_no_temperature_and_no_score_makes_nan(temperature, dtype, scale):
    tensors = inputs(2, 2, 9, 9, 4, dtype, hide=0.2, scale=scale)
    readings, _, *gradients = outcome(tensors, temperature=temperature, sample=True)
    assert readings.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_cold_draws_are_one_hot_and_hot_ones_even():
    tensors = inputs(2, 2, 30, 9, 4)
    for temperature in (0.0, 1e-12):
        torch.manual_seed(3)
        readings, choices, weights = hard_attention(*tensors, temperature, sample=True, return_weights=True)
        torch.testing.assert_close(weights, torch.nn.functional.one_hot(choices, 9).double())
        torch.testing.assert_close(readings, outcome(tensors, temperature=0.0, sample=True)[0])
    *_, weights = hard_attention(*tensors, 1e9, sample=True, return_weights=True)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 9))


def test_ties_go_to_the_lowest_index(mode):
    scores = torch.zeros(1, 1, 3, 1000)
    scores[0, 0, 1, :300] = -torch.inf
    scores[0, 0, 2, 700:] = 1.0
    _, choices = hard_attention(scores, torch.zeros(1, 1, 1000, 1))
    assert choices.flatten().tolist() == [0, 300, 700]


def test_weights_are_what_was_used(mode):
    scores, values = inputs(2, 2, 7, 5, 3, hide=0.5)
    readings, choices, weights = hard_attention(scores, values, **mode, return_weights=True)
    torch.testing.assert_close(weights @ values, readings)
    torch.testing.assert_close(weights.sum(-1), (choices >= 0).double())
    assert (weights[scores == -torch.inf] == 0).all()
    torch.testing.assert_close(weights.max(-1).indices[choices >= 0], choices[choices >= 0])


def test_straight_through_has_the_gradient_of_the_soft_draw():
    tensors = inputs(2, 2, 7, 5, 3, hide=0.5)
    soft, hard = (outcome(tensors, sample=True, straight_through=through) for through in (False, True))
    assert torch.equal(soft[1], hard[1])
    torch.testing.assert_close(soft[2], hard[2])
    torch.testing.assert_close(hard[0], outcome(tensors, temperature=0.0, sample=True)[0])


def test_without_noise_the_weights_are_the_softmax_and_nothing_is_drawn():
    scores, values = inputs(2, 2, 7, 5, 3)
    state = torch.get_rng_state()
    *_, weights = hard_attention(scores, values, 0.3, sample=True, noise=False, return_weights=True)
    torch.testing.assert_close(weights, (scores / 0.3).softmax(-1))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_generator_decides():
    tensors = inputs(2, 2, 7, 5, 3)
    state = torch.get_rng_state()
    first, _ = hard_attention(*tensors, sample=True)
    second, _ = hard_attention(*tensors, sample=True)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(hard_attention(*tensors, sample=True)[0], first)


def test_a_query_that_sees_nothing_gives_zeros(mode):
    scores, values = inputs(1, 1, 3, 4, 2)
    with torch.no_grad():
        scores[0, 0, 1] = -torch.inf
    readings, choices, grad_scores, grad_values = outcome([scores, values], **mode)
    assert choices[0, 0, 1] == -1
    assert (readings[0, 0, 1] == 0).all()
    assert (grad_scores[0, 0, 1] == 0).all()
    assert all(tensor.isfinite().all() for tensor in (readings, grad_scores, grad_values))


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("causal", [False, True])
def test_past_the_length_nothing_enters_and_nothing_leaves(mode, poison, causal):
    lengths = torch.tensor([6, 2, 0])
    past = torch.arange(6) >= lengths[:, None]
    clean = inputs(3, 2, 6, 6, 4)
    masks = [past[:, None, :, None] | past[:, None, None, :], past[:, None, :, None]]
    poisoned = [x.detach().masked_fill(mask, poison).requires_grad_() for x, mask in zip(clean, masks, strict=True)]
    results = []
    for tensors in (clean, poisoned):
        torch.manual_seed(3)
        readings, choices = hard_attention(*tensors, **mode, lengths=lengths, causal=causal)
        cotangent = torch.ones_like(readings).masked_fill(past[:, None, :, None], poison)
        gradients = torch.autograd.grad(readings, tensors, cotangent, allow_unused=True, materialize_grads=True)
        results.append((readings, choices, *gradients))
    for result, wanted in zip(*results, strict=True):
        assert torch.equal(result, wanted)
        assert result.isfinite().all()
    readings, choices, *gradients = results[0]
    assert (readings.transpose(1, 2)[past] == 0).all()
    assert (choices.transpose(1, 2)[past] == -1).all()
    for gradient, mask in zip(gradients, masks, strict=True):
        assert (gradient[mask.expand_as(gradient)] == 0).all()


def test_lengths_of_the_memory(mode):
    lengths, memory_lengths = torch.tensor([3, 7, 0]), torch.tensor([5, 0, 2])
    scores, values = inputs(3, 2, 7, 5, 4)
    readings, choices, *_ = outcome([scores, values], **mode, lengths=lengths, memory_lengths=memory_lengths)
    here = (torch.arange(7) < lengths[:, None])[:, None, :, None]
    here = here & (torch.arange(5) < memory_lengths[:, None])[:, None, None]
    wanted, wanted_choices, *_ = outcome([scores.masked_fill(~here, -torch.inf), values], **mode)
    assert torch.equal(readings, wanted)
    assert torch.equal(choices, wanted_choices)


def test_nan_and_infinities_reach_only_those_who_may_see_them(mode):
    scores, values = inputs(2, 1, 9, 9, 4)
    for where, seen in [(scores, [5]), (values, [5, 6, 7, 8])]:
        for poison in (math.nan, math.inf):
            with torch.no_grad():
                kept = where.clone()
                where[0, 0, 5, 2] = poison
            readings, _, *gradients = outcome([scores, values], causal=True, **mode)
            broken = (~readings.isfinite()).any(-1)
            assert not broken[1].any()
            assert set(broken[0, 0].nonzero().flatten().tolist()) <= set(seen)
            if math.isnan(poison) and where is scores:
                assert broken[0, 0, 5]
            assert all(gradient[1].isfinite().all() for gradient in gradients)
            with torch.no_grad():
                where.copy_(kept)


def test_a_later_value_cannot_reach_an_earlier_query(mode):
    scores, values = inputs(1, 2, 9, 9, 4)
    expected = outcome([scores, values], causal=True, **mode)[0][:, :, :6]
    with torch.no_grad():
        values[:, :, 6:] = math.nan
        scores[..., 6:] = math.nan
    assert torch.equal(outcome([scores, values], causal=True, **mode)[0][:, :, :6], expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_a_device(cuda, dtype):
    """A NaN in a value reaches who may see it, found by a product of halves."""
    scores, values = (tensor.detach() for tensor in inputs(2, 2, 300, 300, 40, hide=0.3))
    values[0, :, 200, 7] = math.nan
    options = {"sample": True, "noise": False, "causal": True}
    expected = outcome([scores.requires_grad_(), values.requires_grad_()], **options)
    moved = [x.detach().to(cuda, dtype).requires_grad_() for x in (scores, values)]
    for result, wanted in zip(outcome(moved, **options), expected, strict=True):
        tolerance = 1e-4 if dtype == torch.float32 else 1e-11
        torch.testing.assert_close(
            result.cpu(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=False
        )


@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 4), (2, 2, 0, 4, 4), (2, 2, 4, 0, 4), (2, 0, 3, 3, 4), (1, 1, 3, 4, 0)])
def test_empty_sizes(mode, shape):
    readings, choices, *gradients = outcome(inputs(*shape), **mode)
    assert readings.shape == (*shape[:3], shape[4])
    assert choices.shape == shape[:3]
    assert choices.dtype == torch.int64
    assert all(tensor.isfinite().all() for tensor in (readings, *gradients))
    if shape[3] == 0:
        assert (choices == -1).all()
        assert (readings == 0).all()


@pytest.mark.parametrize("time", [1, 2, 7])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_gradcheck(time, temperature):
    tensors = inputs(2, 1, time, time, 2)

    def program(scores, values):
        torch.manual_seed(3)
        return hard_attention(scores, values, temperature, sample=True, causal=True, return_weights=True)[::2]

    assert gradcheck(program, tensors)
    if time < 7:
        assert gradgradcheck(program, tensors)


@pytest.mark.covering(1)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_operator_is_well_registered(temperature):
    scores, cotangent = inputs(1, 2, 3, 4, 4, hide=0.3)[0], torch.ones(1, 2, 3, 4, dtype=torch.float64)
    operators = torch.ops.structattn
    torch.library.opcheck(operators.gumbel_softmax.default, (scores, scores.detach().amax(-1), temperature))
    weights = scores.detach().softmax(-1).nan_to_num().requires_grad_()
    torch.library.opcheck(operators.gumbel_softmax_backward.default, (cotangent, weights, temperature))


@pytest.mark.covering(1)
@pytest.mark.parametrize("options", [{}, {"lengths": torch.tensor([4, 2])}])
def test_survives_compilation(mode, options):
    torch._dynamo.reset()  # a program for each form would exceed its limit
    scores, values = inputs(2, 2, 4, 4, 5)

    def program(scores, values, options):
        readings, choices = hard_attention(scores, values, causal=True, **mode, **options)
        return readings.sin(), choices

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    results = []
    for run in (program, compiled):
        torch.manual_seed(3)
        readings, choices = run(scores, values, options)
        results.append((readings, choices, *torch.autograd.grad(readings.sum(), values)))
    for result, wanted in zip(*results, strict=True):
        torch.testing.assert_close(result, wanted)


def test_low_precision_is_computed_in_float32(mode):
    scores, values = (tensor.detach().bfloat16() for tensor in inputs(2, 2, 30, 30, 4))
    exact, chosen, *_ = outcome([scores.float().requires_grad_(), values.float().requires_grad_()], **mode)
    torch.manual_seed(3)
    result, choices = hard_attention(scores, values, **mode)
    assert torch.equal(result, exact.bfloat16())
    assert torch.equal(choices, chosen)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(3)
        mixed, _ = hard_attention(scores, values.float(), **mode)
    assert torch.equal(mixed, exact)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": torch.zeros(2, 4, 3)}, r"scores has shape \(2, 4, 3\); expected \(B, H, T, S\)"),
        ({"values": torch.zeros(2, 1, 4, 5)}, r"values has shape .* expected \(B, H, S, d\)"),
        ({"values": torch.zeros(2, 1, 3, 5).double()}, "float64"),
        ({"lengths": torch.tensor([4, 4])}, "4 queries and 3 keys; give memory_lengths too"),
        ({"temperature": -1.0}, r"temperature=-1.0; expected 0 <= temperature < inf"),
        ({"temperature": math.nan}, "temperature=nan"),
    ],
)
def test_refusals(change, message):
    arguments = {"scores": torch.zeros(2, 1, 4, 3), "values": torch.zeros(2, 1, 3, 5)} | change
    with pytest.raises(ValueError, match=message):
        hard_attention(**arguments)


def test_gradients_of_each_sample():
    scores, values = torch.randn(3, 1, 1, 4, 4), torch.randn(3, 1, 1, 4, 2)

    def total(scores, values):
        return hard_attention(scores, values, return_weights=True)[0].square().sum()

    found = torch.vmap(torch.func.grad(total, argnums=1))(scores, values)
    expected = torch.stack([torch.func.grad(total, argnums=1)(*each) for each in zip(scores, values, strict=True)])
    torch.testing.assert_close(found, expected)
