"""Hard-coded Gaussian attention: the paper's numbers, kernel against definition, and the contract's corners."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from structattn.operators import gaussian_attention, gaussian_weights
from structattn.operators.gaussian_attention import Gaussians

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu"]
OFFSETS = (-1.0, 0.3, 2.0)
FORMS = {
    "self": {},
    "decoder": {"causal": True},
    "window": {"kernel": "window", "causal": True},
    "wide window": {"kernel": "window", "window": 13},
    "index": {"kernel": "index"},
    "cross": {"ratio": 0.963, "floor": True},
    "cross, as its code": {"ratio": 1.431},
    "steep": {"ratio": 7.5, "kernel": "window"},
    "normalized": {"normalize": True, "causal": True},
    "normalized cross": {"normalize": True, "ratio": 2.5},
    "normalized window": {"normalize": True, "kernel": "window"},
    "wide": {"sigma": 12.5},
    "narrow": {"sigma": 0.1, "causal": True},
    "late": {"first": 5, "first_key": 3, "causal": True},
}
SHAPES = [(2, 1, 1, 4), (2, 2, 2, 1), (1, 7, 9, 3), (2, 63, 63, 8), (1, 63, 20, 65), (1, 3, 66, 17)]  # B, T, S, d


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def form(request):
    return request.param


def make(batch, keys, size, dtype=torch.float64, heads=3, scale=1.0):
    generator = torch.Generator().manual_seed(batch + 10 * keys)
    values = scale * torch.randn(batch, heads, keys, size, generator=generator, dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def outcome(values, offsets=OFFSETS, **options):
    outputs = gaussian_attention(values, offsets, **options)
    cotangent = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view(outputs.shape).sin()
    return outputs, *torch.autograd.grad(outputs, values, cotangent)


def by_hand(offset, i, keys, dtype, options):
    """One row of weights with Python's numbers; keys are their positions."""
    kernel, sigma, window = options.get("kernel", "full"), options.get("sigma", 1.0), options.get("window", 3)
    centre = options.get("ratio", 1.0) * i + offset
    centre = math.floor(centre) if options.get("floor") else centre
    kept = [
        j
        for j in keys
        if not (options.get("causal") and j > i)
        and (kernel == "full" or abs(j - math.floor(centre + 0.5)) <= (window // 2 if kernel == "window" else 0))
    ]
    if kernel == "index":
        return [float(j in kept) for j in keys]
    exponents = {j: -((j - centre) ** 2) / (2 * sigma**2) for j in kept}
    if options.get("normalize"):
        most = max(exponents.values(), default=0)
        powers = {j: math.exp(x - most) for j, x in exponents.items()}
        weights = {j: power / sum(powers.values()) for j, power in powers.items()}
    else:
        weights = {j: math.exp(x) / (sigma * math.sqrt(2 * math.pi)) for j, x in exponents.items()}
    tiny = torch.finfo(dtype).tiny
    return [weights.get(j, 0) if weights.get(j, 0) >= tiny else 0 for j in keys]


def table_by_hand(offsets, queries, keys, dtype, options):
    first, first_key = options.get("first", 0), options.get("first_key", 0)
    places = range(first_key, first_key + keys)
    rows = [[by_hand(o, first + i, places, dtype, options) for i in range(queries)] for o in offsets]
    return torch.tensor(rows, dtype=torch.float64).view(len(offsets), queries, keys)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_equal_the_formula(form, dtype, shape):
    _, queries, keys, _ = shape
    found = gaussian_weights(OFFSETS, queries, keys, **form, dtype=dtype)
    wanted = table_by_hand(OFFSETS, queries, keys, dtype, form)
    assert found.dtype == dtype
    # exp(-80) is as exact as its exponent, which has the rounding of distances of up to 150 positions in it
    tolerance = {torch.float32: 3e-4, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=1e-37)
    assert (found - wanted).norm() <= TOLERANCE[dtype] * max(wanted.norm(), 1e-30)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_equals_the_definition(form, dtype, shape, implementation):
    batch, queries, keys, size = shape
    values = make(batch, keys, size, dtype)
    found = outcome(values, queries=queries, **form, implementation=implementation)
    weights = table_by_hand(OFFSETS, queries, keys, torch.float64, form)
    double = values.detach().double().requires_grad_()
    wanted = weights @ double
    cotangent = torch.linspace(-1, 1, wanted.numel(), dtype=dtype).view(wanted.shape).sin()
    expected = (wanted, *torch.autograd.grad(wanted, double, cotangent.double()))
    for result, definition in zip(found, expected, strict=True):
        assert result.dtype == dtype
        assert (result.double() - definition).norm() <= TOLERANCE[dtype] * max(definition.norm(), cotangent.norm())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_lengths_equal_sequences_alone(form, implementation):
    values, lengths, ends = make(3, 12, 5), torch.tensor([9, 4, 0]), torch.tensor([12, 7, 3])
    given = {"queries": 9, "lengths": lengths, "memory_lengths": ends, "implementation": implementation}
    outputs, gradient = outcome(values, **form, **given)
    weights = gaussian_weights(OFFSETS, 9, 12, **form, lengths=lengths, memory_lengths=ends, dtype=torch.float64)
    torch.testing.assert_close(weights @ values, outputs, rtol=1e-12, atol=1e-14)
    cotangent = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view(outputs.shape).sin()
    for b, (t, s) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True)):
        alone_values = values[b : b + 1, :, :s].detach().requires_grad_()
        alone = gaussian_attention(alone_values, OFFSETS, queries=t, **form, implementation=implementation)
        (alone_gradient,) = torch.autograd.grad(alone, alone_values, cotangent[b : b + 1, :, :t])
        torch.testing.assert_close(outputs[b : b + 1, :, :t], alone, rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(gradient[b : b + 1, :, :s], alone_gradient, rtol=1e-13, atol=1e-15)
        assert outputs[b, :, t:].count_nonzero() + gradient[b, :, s:].count_nonzero() == 0


@pytest.mark.parametrize(
    ("offset", "query", "causal", "total"),
    [
        (-1, 0, False, 0.3005),
        (0, 0, False, 0.6995),
        (1, 0, False, 0.9414),
        (0, 20, True, 0.6995),
        (-1, 20, True, 0.9414),
    ],
)
def test_sums_at_the_borders(offset, query, causal, total):
    weights = gaussian_weights([offset], 40, causal=causal, dtype=torch.float64)
    assert abs(weights[0, query].sum().item() - total) < 5e-5


def test_the_papers_numbers():
    weights = gaussian_weights([0], 40, dtype=torch.float64)
    expected = torch.tensor([0.3989, 0.2420, 0.0540, 0.0044], dtype=torch.float64)
    torch.testing.assert_close(weights[0, 20, 20:24], expected, rtol=0, atol=5e-5)
    assert abs(weights[0, 20].sum().item() - 1) < 1e-8
    first = gaussian_weights([0, -1], 4, causal=True)[:, 0]
    torch.testing.assert_close(first[:, 0], torch.tensor([0.3989, 0.2420]), rtol=0, atol=5e-5)
    assert first[:, 1:].count_nonzero() == 0
    window = gaussian_weights([0, -1], 40, kernel="window", causal=True, dtype=torch.float64)
    assert window[0, 20].nonzero().flatten().tolist() == [19, 20]
    assert window[1, 20].nonzero().flatten().tolist() == [18, 19, 20]
    assert abs(window[1, 20].sum().item() - 0.883) < 5e-4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_window_of_13_is_the_full_form_in_float32(causal, offset):
    values = make(2, 63, 8, torch.float32, heads=1)
    full, conv = (outcome(values, [offset], causal=causal, kernel=kernel, window=13) for kernel in ("full", "window"))
    for result, expected in zip(conv, full, strict=True):
        assert (result - expected).norm() <= 1e-7 * expected.norm()


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_of_3_is_the_masked_full_form_and_a_convolution(causal):
    values, offsets = make(2, 20, 4, heads=3), [-1, 0, 1]
    full = gaussian_weights(offsets, 20, causal=causal, dtype=torch.float64)
    distance = torch.arange(20) - torch.arange(20)[:, None]
    near = torch.stack([(distance - offset).abs() <= 1 for offset in offsets])
    found = gaussian_attention(values, offsets, kernel="window", causal=causal)
    torch.testing.assert_close(found, (full * near) @ values)
    taps = torch.tensor([0.24197072451914337, 0.3989422804014327, 0.24197072451914337], dtype=torch.float64)
    for head, offset in enumerate(offsets):
        kernel = F.pad(taps, (1 + offset, 1 - offset))  # the weights of positions i - 2 to i + 2
        if causal:
            kernel[3:] = 0
        convolved = F.conv1d(values[:, head].transpose(1, 2), kernel.expand(4, 1, 5), padding=2, groups=4)
        torch.testing.assert_close(found[:, head], convolved.transpose(1, 2))


def test_indexing_shifts():
    values = make(2, 9, 4, heads=3)
    left, same, right = gaussian_attention(values, [1, 0, -1], kernel="index").unbind(1)
    assert torch.equal(left[:, :-1], values[:, 0, 1:])
    assert (left[:, -1] == 0).all()
    assert torch.equal(same, values[:, 1])
    assert torch.equal(right[:, 1:], values[:, 2, :-1])
    assert (right[:, 0] == 0).all()
    assert (gaussian_attention(values, [1, 0, -1], kernel="index", causal=True)[:, 0] == 0).all()


def test_cross_attention_follows_the_ratio():
    values = make(1, 10, 4, heads=1)
    for floor, centres in [(True, [-1, 0, 2, 3, 5, 6]), (False, [-1, 1, 2, 4, 5, 7])]:  # 1.5 i - 1; halves up
        found = gaussian_attention(values, [-1], queries=6, ratio=1.5, floor=floor, kernel="index")
        expected = [values[0, 0, c] if c >= 0 else torch.zeros(4).double() for c in centres]
        assert torch.equal(found[0, 0], torch.stack(expected))


def test_one_row_at_any_position_is_that_row(form):
    form = {key: value for key, value in form.items() if not key.startswith("first")}
    values = make(2, 30, 4)
    whole = gaussian_attention(values, OFFSETS, queries=25, **form)
    weights = gaussian_weights(OFFSETS, 25, 30, **form, dtype=torch.float64)
    for t in (0, 1, 13, 24):
        row = gaussian_weights(OFFSETS, 1, 30, **form, first=t, dtype=torch.float64)
        torch.testing.assert_close(row[:, 0], weights[:, t], rtol=1e-14, atol=0)
        one = gaussian_attention(values, OFFSETS, queries=1, **form, first=t)
        torch.testing.assert_close(one[:, :, 0], whole[:, :, t], rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ["full", "window", "index"])
@pytest.mark.parametrize("offsets", [(-1, 0), (-2.5, 0.49999999999999994), (1, 1), (-70.2, 3)])
def test_causal_self_attention_needs_the_last_few_values_only(dtype, kernel, offsets):
    values = make(1, 150, 3, dtype, heads=2)
    whole = gaussian_attention(values, offsets, kernel=kernel, causal=True)
    needed = Gaussians(offsets, kernel=kernel).values_needed(dtype)
    for t in (0, 1, 40, 149):
        last = values[:, :, max(0, t + 1 - needed) : t + 1]
        step = gaussian_attention(last, offsets, queries=1, first=last.shape[2] - 1, kernel=kernel, causal=True)
        assert torch.equal(step[:, :, 0], whole[:, :, t])


def test_few_values_are_needed():
    assert Gaussians((-1, 0)).values_needed(torch.float32) == 15
    assert Gaussians((-1, 0), kernel="window").values_needed(torch.float32) == 3
    assert Gaussians((-1, 0), kernel="index").values_needed(torch.float32) == 2
    assert Gaussians((1,), kernel="index").values_needed(torch.float32) == 0


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_centres_far_outside(implementation):
    values = make(1, 5, 3, heads=2)
    options = {"implementation": implementation, "queries": 4}
    assert (gaussian_attention(values, [-1000, 1000], **options) == 0).all()
    nearest = gaussian_attention(values, [-1000, 1000], normalize=True, **options)
    expected = torch.stack([values[0, 0, 0], values[0, 1, -1]])[None, :, None].expand(1, 2, 4, 3)
    torch.testing.assert_close(nearest, expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("time", [1, 2, 7])
def test_gradcheck(form, implementation, time):
    values = make(2, time, 2)
    lengths = torch.tensor([time, time // 2])
    options = {**form, "lengths": lengths, "implementation": implementation}
    assert gradcheck(lambda v: gaussian_attention(v, OFFSETS, **options), values)
    assert gradgradcheck(lambda v: gaussian_attention(v, OFFSETS, **options).square(), values)


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_past_the_length_nothing_enters_and_nothing_leaves(form, implementation, poison):
    lengths = torch.tensor([6, 2, 0])
    past = (torch.arange(6) >= lengths[:, None])[:, None, :, None].expand(3, 3, 6, 4)
    clean, results = make(3, 6, 4), []
    for filling in (0.0, poison):
        values = clean.detach().masked_fill(past, filling).requires_grad_()
        outputs = gaussian_attention(values, OFFSETS, **form, lengths=lengths, implementation=implementation)
        cotangent = torch.ones_like(outputs).masked_fill(past, poison)
        results.append((outputs, *torch.autograd.grad(outputs, values, cotangent)))
    for result, expected in zip(*results, strict=True):
        assert torch.equal(result, expected)
        assert (result[past] == 0).all()
        assert result.isfinite().all()


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_reaches_those_only_who_see_it(form, implementation, poison):
    values = make(2, 40, 4)
    weights = gaussian_weights(OFFSETS, 40, **form, dtype=torch.float64)
    with torch.no_grad():
        values[0, :, 12, 2] = poison
    outputs, gradient = outcome(values, **form, implementation=implementation)
    broken = ~outputs.isfinite()
    assert not broken[1].any()
    assert not broken[0][..., [0, 1, 3]].any()
    assert torch.equal(broken[0, :, :, 2], weights[:, :, 12] != 0)
    assert gradient.isfinite().all()


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(0, 3, 3, 4), (2, 0, 0, 4), (2, 3, 0, 4), (2, 0, 3, 4), (1, 3, 3, 0)])
def test_empty_sizes(form, implementation, shape):
    batch, queries, keys, size = shape
    values = make(batch, keys, size)
    outputs, gradient = outcome(values, queries=queries, **form, implementation=implementation)
    assert outputs.shape == (batch, 3, queries, size)
    assert gradient.shape == values.shape
    assert gaussian_weights(OFFSETS, queries, keys, **form).shape == (3, queries, keys)
    if 0 in (queries, keys):
        assert outputs.count_nonzero() + gradient.count_nonzero() == 0


def test_no_heads():
    assert gaussian_attention(torch.zeros(2, 0, 3, 4), []).shape == (2, 0, 3, 4)


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("scale", [0.0, 1e-40, 88.0, 1e4, 1e38])
def test_extreme_finite_values_stay_finite(form, implementation, scale):
    values = make(2, 9, 4, torch.float32, scale=scale).clamp(-1e38, 1e38).detach().requires_grad_()
    if form.get("sigma") == 0.1:  # a density up to 4
        values = (values / 4).detach().requires_grad_()
    assert all(result.isfinite().all() for result in outcome(values, **form, implementation=implementation))


def test_layouts_do_not_matter_and_are_kept():
    values = make(2, 20, 70)
    expected = outcome(values, causal=True)
    for axes in [(0, 2, 1, 3), (2, 3, 0, 1), (3, 1, 0, 2)]:
        inverse = [axes.index(axis) for axis in range(4)]
        other = values.detach().permute(axes).contiguous().permute(inverse).requires_grad_()
        for result, wanted in zip(outcome(other, causal=True), expected, strict=True):
            assert torch.equal(result, wanted)
    by_time = values.detach().transpose(1, 2).contiguous().transpose(1, 2)
    assert gaussian_attention(by_time, OFFSETS).transpose(1, 2).is_contiguous()
    assert gaussian_attention(values, OFFSETS).is_contiguous()


@pytest.mark.parametrize("by_time", [False, True])
def test_threads_do_not_change_a_sum(assert_same_by_threads, by_time):
    values = make(4, 300, 16, torch.float32, heads=4).detach()
    values = values.transpose(1, 2).contiguous().transpose(1, 2) if by_time else values
    values.requires_grad_()
    assert_same_by_threads(lambda: outcome(values, [-1, 0, 1, 2]), (1, 3, 6))


@pytest.mark.quick("4-2")
@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("rows", [1, 4])
def test_operator_is_well_registered(tables, rows):
    values, ends = make(2, 6, 3), torch.tensor([5, 2])
    weights = torch.rand(tables, 3, rows, 3, dtype=torch.float64)
    starts = torch.arange(-1, 3).expand(tables, 3, 4).contiguous()
    forward = torch.ops.structattn.gaussian_attention.default
    backward = torch.ops.structattn.gaussian_attention_backward.default
    for lengths in [(None, None), (torch.tensor([4, 1]), ends)]:
        torch.library.opcheck(forward, (values, weights, starts, *lengths))
        by_time = values.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        torch.library.opcheck(forward, (by_time, weights, starts, *lengths))
        cotangent = torch.ones(2, 3, 4, 3, dtype=torch.float64, requires_grad=True)
        torch.library.opcheck(backward, (cotangent, weights, starts, *lengths, 6))


@pytest.mark.quick("normalized cross-cpu", "window-reference")
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_survives_compilation(form, implementation):
    values, lengths = make(2, 6, 3), torch.tensor([6, 2])

    def program(values, lengths):
        return gaussian_attention(values, OFFSETS, **form, lengths=lengths, implementation=implementation).sin()

    torch._dynamo.reset()  # a program for each form would exceed its limit
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(values, lengths), program(values, lengths))
    expected = torch.autograd.grad(program(values, lengths).sum(), values)
    torch.testing.assert_close(torch.autograd.grad(compiled(values, lengths).sum(), values), expected)


def test_low_precision_is_computed_in_float32():
    values = make(2, 30, 4, torch.float32).detach()
    exact = gaussian_attention(values.bfloat16().float(), OFFSETS)
    assert torch.equal(gaussian_attention(values.bfloat16(), OFFSETS), exact.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for implementation in IMPLEMENTATIONS:
            mixed = gaussian_attention(values.bfloat16(), OFFSETS, implementation=implementation)
            torch.testing.assert_close(mixed, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(2, 4, 3)}, r"values has shape \(2, 4, 3\)"),
        ({"offsets": [0.0, 1.0]}, "one head for each offset"),
        ({"values": torch.zeros(2, 1, 4, 3, dtype=torch.int64)}, "int64; expected a floating-point dtype"),
        ({"offsets": [math.nan]}, "expected finite numbers"),
        ({"ratio": -1.0}, "ratio=-1.0; expected 0 <= ratio < inf"),
        ({"sigma": 0.0}, "sigma=0.0; expected 0 < sigma < inf"),
        ({"kernel": "conv"}, "kernel='conv'; expected one of"),
        ({"window": 4}, "window=4; expected an odd number"),
        ({"lengths": torch.tensor([3, 3]), "queries": 3}, "3 queries and 4 keys; give memory_lengths too"),
        ({"queries": -1}, "queries=-1 and keys=4; expected at least 0"),
    ],
)
def test_refusals(change, message):
    arguments = {"values": torch.zeros(2, 1, 4, 3), "offsets": [0.0]} | change
    with pytest.raises(ValueError, match=message):
        gaussian_attention(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": -1}, "queries=4 and keys=-1; expected at least 0"),
        ({"lengths": [4, 2]}, r"lengths: integers \(B,\) = \(2,\), found a list"),
        ({"dtype": torch.bfloat16}, "dtype=torch.bfloat16; expected torch.float32 or torch.float64"),
        ({"dtype": torch.int64}, "dtype=torch.int64; expected torch.float32 or torch.float64"),
    ],
)
def test_refusals_of_weights(change, message):
    with pytest.raises(ValueError, match=message):
        gaussian_weights([0.0], 4, **change)


@pytest.mark.parametrize("implementation", ["reference", "cpu"])
def test_the_nearest_of_narrow_gaussians_share_what_is_normalised(implementation):
    """Half way between two keys both have half of the weight, though their densities are far below all numbers."""
    values = torch.arange(5.0, dtype=torch.float64)[None, None, :, None]
    y = gaussian_attention(values, [0.5], sigma=0.01, normalize=True, implementation=implementation)
    torch.testing.assert_close(y.flatten(), torch.tensor([0.5, 1.5, 2.5, 3.5, 4.0], dtype=torch.float64))
