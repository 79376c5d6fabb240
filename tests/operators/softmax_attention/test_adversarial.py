"""Hostile numbers: no finite input gives NaN, kernel and definition agree, and a NaN stays where it belongs."""

import pytest
import torch
from adversarial import batches_of

from structattn.operators.softmax_attention import softmax_attention

BATCH = 5


def drawn(generator, *bounds):
    return [int(torch.randint(low, high, (), generator=generator)) for low, high in bounds]


def case_of(number, hostile):
    """Arguments and options of one case."""
    generator = torch.Generator().manual_seed(number)
    heads, queries, keys, size, value_size = drawn(generator, (1, 3), (1, 14), (1, 14), (1, 10), (1, 10))
    shapes = [(BATCH, heads, queries, size), (BATCH, heads, keys, size), (BATCH, heads, keys, value_size)]
    tensors = [hostile(generator, shape) for shape in shapes]
    pairs = (BATCH, heads, queries, keys)
    broadcast = [1 if chance < 0.3 else n for chance, n in zip(torch.rand(4, generator=generator), pairs, strict=True)]
    tensors.append(hostile(generator, broadcast, forbidden=0.3))
    ends = [torch.randint(0, n + 1, (BATCH,), generator=generator) for n in (queries, keys)]
    causal, ended = drawn(generator, (0, 2), (0, 2))
    options = {"causal": bool(causal)} | ({"lengths": ends[0], "memory_lengths": ends[1]} if ended else {})
    return tensors, options


def outcome(tensors, implementation, options):
    """Outputs and weights, and the gradients for ones as cotangents of both."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    results = softmax_attention(
        *leaves[:3], mask=leaves[3], return_weights=True, implementation=implementation, **options
    )
    gradients = torch.autograd.grad(results, leaves, [torch.ones_like(result) for result in results])
    return [result.detach() for result in results], gradients


@pytest.mark.parametrize("number", batches_of(BATCH))
def test_hostile_numbers(number, hostile):
    tensors, options = case_of(number, hostile)
    (results, gradients), (wanted, wanted_gradients) = (
        outcome(tensors, name, options) for name in ("cpu", "reference")
    )
    for x, r in zip(results, wanted, strict=True):
        assert x.isfinite().all()
        # Scores of 1e8 have an ulp of 1e-8, and exp makes a relative error of it.
        assert float((x - r).norm()) <= 1e-6 * max(float(r.norm()), 1e-30)
    size = sum(r.numel() for r in wanted) ** 0.5 * max(1.0, *(float(tensor.abs().max()) for tensor in tensors[:3]))
    for x, r in zip(gradients, wanted_gradients, strict=True):
        assert x.isfinite().all()
        assert float((x - r).norm()) <= 1e-6 * max(float(r.norm()), size)


@pytest.mark.parametrize("number", batches_of(BATCH))
def test_a_nan_stays_where_it_belongs(number, hostile):
    tensors, options = case_of(number, hostile)
    generator = torch.Generator().manual_seed(number)
    for tensor in tensors:
        tensor[(torch.rand(tensor.shape, generator=generator) < 0.05) & (tensor != -torch.inf)] = torch.nan
    results, wanted = (outcome(tensors, name, options)[0] for name in ("cpu", "reference"))
    for x, r in zip(results, wanted, strict=True):
        assert torch.equal(x.isnan(), r.isnan())


@pytest.mark.parametrize("largest", [1e38, 3e38])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("time", [1, 4, 5, 40])
def test_values_near_the_largest_number(time, causal, largest):
    query, value = torch.zeros(1, 2, time, 3), torch.full((1, 2, time, 4), largest)
    found = softmax_attention(query, query, value, causal=causal, implementation="cpu")
    torch.testing.assert_close(found, value)
