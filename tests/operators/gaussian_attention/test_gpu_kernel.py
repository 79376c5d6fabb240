"""The Triton kernel of Gaussian attention, interpreted or on a device, against the definition."""

import pytest
import torch

from structattn.operators import gaussian_attention

OFFSETS = (-1.0, 0.3, 2.0)
FORMS = {
    "self": {},
    "decoder": {"causal": True, "sigma": 0.7},
    "index": {"kernel": "index"},
    "cross": {"ratio": 0.4, "floor": True},
    "steep": {"ratio": 7.5, "kernel": "window"},
    "one centre": {"ratio": 0.0},
    "normalized": {"normalize": True, "causal": True},
    "normalized cross": {"normalize": True, "ratio": 2.5},
    "late": {"first": 5, "first_key": 3, "causal": True},
}
SHAPES = [(1, 1, 1), (7, 9, 3), (9, 7, 17), (3, 40, 1)]  # T, S, d
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def form(request):
    return request.param


def outcome(values, **options):
    values = values.detach().requires_grad_()
    outputs = gaussian_attention(values, OFFSETS, **options)
    cotangent = torch.linspace(-1, 1, outputs.numel(), dtype=torch.float64).view(outputs.shape).sin().to(outputs)
    return outputs, *torch.autograd.grad(outputs, values, cotangent)


def drawn(batch, keys, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, keys, size, generator=generator, dtype=torch.float64)


def assert_equals_definition(values, device, dtype, lengths=(), **options):
    ends = {name: torch.tensor(each) for name, each in lengths}
    expected = outcome(values, **options, **ends, implementation="reference")
    moved = {name: each.to(device) for name, each in ends.items()}
    found = outcome(values.to(device, dtype), **options, **moved, implementation="gpu")
    for result, wanted in zip(found, expected, strict=True):
        assert result.dtype == dtype
        assert (result.cpu().double() - wanted).norm() <= TOLERANCE[dtype] * wanted.norm().clamp(min=1)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("queries", "keys", "size"), SHAPES)
def test_kernel_equals_definition(gpu, form, dtype, queries, keys, size):
    values = drawn(2, keys, size)
    values = values if size < 17 else values.transpose(1, 2).contiguous().transpose(1, 2)
    assert_equals_definition(values, gpu, dtype, queries=queries, **form)


@pytest.mark.quick("interpreted-normalized cross", "interpreted-decoder")
def test_several_blocks_and_lengths(gpu, form):
    lengths = (("lengths", [33, 0]), ("memory_lengths", [2, 33]))
    assert_equals_definition(drawn(2, 33, 2), gpu, torch.float32, lengths, **form)


@pytest.mark.covering(1)
def test_what_is_not_finite_reaches_those_only_who_see_it(gpu, form):
    values = drawn(2, 9, 2).to(gpu)
    values[0, :, 6, 1] = torch.nan
    values[1, :, 5:] = torch.inf
    lengths = torch.tensor([9, 5], device=gpu)
    expected, _ = outcome(values, **form, lengths=lengths, implementation="reference")
    result, gradient = outcome(values, **form, lengths=lengths, implementation="gpu")
    torch.testing.assert_close(result, expected, equal_nan=True)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_sizes(gpu, shape):
    outputs, gradient = outcome(drawn(*shape).to(gpu), implementation="gpu")
    assert outputs.shape == gradient.shape == (shape[0], 3, *shape[1:])


def test_lengths_beyond_the_tensors_lead_nowhere(gpu):
    """Nobody checks them where the calls are recorded as a graph."""
    buffer = torch.zeros(2, 1, 4, 1, device=gpu)
    buffer[1] = 1000
    weights, starts = torch.ones(1, 1, 1, 3, device=gpu), torch.arange(2, 6, device=gpu)[None, None]
    lengths = torch.tensor([9], device=gpu)
    outputs = torch.ops.structattn.gaussian_attention_gpu(buffer[:1], weights, starts, lengths, lengths)
    assert not outputs.any()


def test_derivatives(gpu):
    values = drawn(1, 3, 1).to(gpu).requires_grad_()

    def attention(values):
        return gaussian_attention(values, OFFSETS, causal=True, implementation="gpu")

    assert torch.autograd.gradcheck(attention, values, fast_mode=True)
    assert torch.autograd.gradgradcheck(attention, values, fast_mode=True)


@pytest.mark.gpu
def test_at_full_size(cuda, form):
    assert_equals_definition(drawn(2, 300, 80), cuda, torch.float32, (("lengths", [300, 111]),), **form)
