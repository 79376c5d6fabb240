"""Gated DeltaProduct: cases worked by hand, products of matrices written out, the chunked form against the scan."""

import math

import pytest
import torch

from structattn.operators import delta_product, delta_product_step
from structattn.operators.delta_product.chunked import ROWS

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def inputs(time, steps=2, batch=2, heads=3, key=5, value=4, dtype=torch.float64, decay=2.0):
    generator = torch.Generator().manual_seed(time)

    def numbers(*shape):
        return torch.randn(batch, heads, time, *shape, generator=generator, dtype=torch.float64)

    keys = torch.nn.functional.normalize(numbers(steps, key), dim=-1)
    beta = 2 * torch.sigmoid(numbers(steps))
    parts = numbers(key), keys, numbers(steps, value), beta, -decay * numbers().abs()
    return [part.to(dtype).requires_grad_() for part in parts]


def outcome(parts, cotangent, implementation, lengths=None):
    readings = delta_product(*parts, lengths=lengths, implementation=implementation)
    return readings, *torch.autograd.grad(readings, parts, cotangent, materialize_grads=True)


def written_out(query, key, value, beta, log_decay):
    """One head: S as a product of matrices (I - beta k k^T), and what each step adds."""
    size, state, readings = query.shape[-1], torch.zeros(query.shape[-1], value.shape[-1], dtype=query.dtype), []
    for t in range(len(query)):
        state = math.exp(log_decay[t]) * state
        for k, v, strength in zip(key[t], value[t], beta[t], strict=True):
            state = (torch.eye(size) - strength * torch.outer(k, k)) @ state + strength * torch.outer(k, v)
        readings.append(state.T @ query[t] / math.sqrt(size))
    return torch.stack(readings)


@pytest.mark.parametrize("implementation", ["reference", "chunked"])
@pytest.mark.parametrize("steps", [1, 3])
def test_is_the_product_of_householder_matrices(implementation, steps):
    parts = [part.detach() for part in inputs(6, steps)]
    found = delta_product(*parts, implementation=implementation)
    for b in range(2):
        for head in range(3):
            expected = written_out(*(part[b, head] for part in parts))
            torch.testing.assert_close(found[b, head], expected, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_step_under_autocast_is_computed_in_the_precision_of_its_inputs():
    token = [part[:, :, 0] for part in inputs(1, dtype=torch.float32)]
    state = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    expected = delta_product_step(state, *token)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = delta_product_step(state, *token)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("implementation", ["reference", "chunked"])
def test_two_reflections_rotate(implementation):
    """By 120 degrees in the plane: after three tokens the vector that was written is back."""
    normals = torch.tensor([[math.cos(angle), math.sin(angle)] for angle in (0, math.pi / 3)], dtype=torch.float64)
    written = torch.tensor(
        [[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64
    )  # k_1 of the first token, and a k of no effect
    time = 7
    key = torch.cat([written[None], normals.expand(time - 1, 2, 2)])[None, None]
    beta = torch.tensor([[1.0, 0.0]] + [[2.0, 2.0]] * (time - 1), dtype=torch.float64)[None, None]
    value = torch.zeros(1, 1, time, 2, 1, dtype=torch.float64)
    value[0, 0, 0, 0] = 1
    query = torch.tensor([math.sqrt(2), 0], dtype=torch.float64).expand(
        1, 1, time, 2
    )  # the reading is the first number
    found = delta_product(query, key, value, beta, torch.zeros(1, 1, time).double(), implementation=implementation)
    expected = torch.tensor([1, -0.5, -0.5, 1, -0.5, -0.5, 1], dtype=torch.float64)
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("steps", [1, 2, 5, ROWS + 6])
@pytest.mark.parametrize("time", [0, 1, 2, 7, 63, 130])
def test_chunks_agree_with_the_scan(time, steps, dtype):
    if steps > ROWS and time > 7:
        return  # a chunk is one token in any case
    parts = inputs(time, steps, heads=1, dtype=dtype)
    cotangent = torch.randn(2, 1, time, 4, dtype=dtype)
    expected, found = (outcome(parts, cotangent, implementation) for implementation in ("reference", "chunked"))
    for result, definition in zip(found, expected, strict=True):
        assert (result - definition).norm() <= TOLERANCE[dtype] * max(definition.norm(), cotangent.norm(), 1e-30)


@pytest.mark.parametrize("decay", [0.0, 1e3])
def test_no_decay_and_a_decay_to_nothing(decay):
    parts = inputs(100, decay=decay)
    cotangent = torch.ones(2, 3, 100, 4, dtype=torch.float64)
    for result, definition in zip(*(outcome(parts, cotangent, each) for each in ("chunked", "reference")), strict=True):
        torch.testing.assert_close(result, definition, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("reset", [-160.0, -1e5, -torch.inf])
def test_small_decays_after_a_reset_keep_their_digits(reset):
    parts = [part.detach() for part in inputs(40, decay=0.1, dtype=torch.float32)]
    parts[-1][..., ::8] = reset
    parts = [part.requires_grad_() for part in parts]
    cotangent = torch.ones(2, 3, 40, 4)
    for result, definition in zip(*(outcome(parts, cotangent, each) for each in ("chunked", "reference")), strict=True):
        torch.testing.assert_close(result, definition, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", ["reference", "chunked"])
def test_padding_has_no_influence_whatever_it_holds(implementation):
    parts, lengths = inputs(40), torch.tensor([40, 17])
    poisoned = [part.detach().clone() for part in parts]
    for part in poisoned:
        part[1, :, 17:] = torch.nan
    cotangent = torch.ones(2, 3, 40, 4, dtype=torch.float64)
    poisoned = [part.requires_grad_() for part in poisoned]
    alone = [part.detach()[1:, :, :17].requires_grad_() for part in parts]
    expected = outcome(alone, cotangent[1:, :, :17], implementation)
    for result, definition in zip(outcome(poisoned, cotangent, implementation, lengths), expected, strict=True):
        assert not result[1, :, 17:].any()
        torch.testing.assert_close(result[1:, :, :17], definition, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("implementation", ["reference", "chunked"])
@pytest.mark.parametrize("sizes", [{"key": 0}, {"value": 0}, {"batch": 0}, {"heads": 0}])
def test_empty_sizes(implementation, sizes):
    parts = inputs(4, **sizes)
    readings = delta_product(*parts, implementation=implementation)
    assert readings.shape == (*parts[0].shape[:3], parts[2].shape[4])
    assert (readings == 0).all()


@pytest.mark.parametrize("implementation", ["reference", "chunked"])
def test_what_overflows_has_no_effect_before(implementation):
    """Keys that are not divided by their norms: the state grows until it is no longer finite."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 1, 64, *size, generator=generator) for size in ((8,), (1, 8), (1, 4)))
    strength, decay = torch.full((1, 1, 64, 1), 1.5), torch.zeros(1, 1, 64)
    readings = delta_product(query, 1.5 * key, value, strength, decay, implementation=implementation)
    finite = int(readings.isfinite().all(-1).sum())
    assert 20 < finite < 64
    assert readings[:, :, :finite].isfinite().all()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["key", "value", "beta", "log_decay"])
def test_what_is_not_finite_has_no_effect_before(part, value):
    parts = [tensor.detach() for tensor in inputs(9)]
    expected = delta_product(*parts)
    parts[["query", "key", "value", "beta", "log_decay"].index(part)][1, 2, 5] = value
    for implementation in ("reference", "chunked"):
        found = delta_product(*parts, implementation=implementation)
        assert not found[1, 2, 5:].isfinite().any(1).any()
        found[1, 2, 5:] = expected[1, 2, 5:]
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
