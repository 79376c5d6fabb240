"""Dropout."""

import math

import pytest
import torch

from structattn.operators.common.dropout import dropout, dropped_steps


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_share_and_scale(rate, dtype):
    torch.manual_seed(0)
    x = torch.ones(200, 301, dtype=dtype)
    kept = dropout(x, rate)
    share = (kept == 0).double().mean()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / x.numel()) + 2**-17
    assert kept[kept != 0].double().sub(1 / (1 - rate)).abs().max() < (0.05 if dtype == torch.bfloat16 else 1e-3)
    assert kept.dtype == dtype


def test_all_four_numbers_of_a_draw_are_even():
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(4000, 4), 0.5) == 0).double()
    assert (dropped.mean(0) - 0.5).abs().max() < 0.04
    assert (torch.corrcoef(dropped.T) - torch.eye(4)).abs().max() < 0.08


def test_gradient_goes_where_the_value_went():
    x = torch.ones(5, 7, requires_grad=True)
    y = dropout(x, 0.5)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())


def test_a_rate_of_zero_changes_nothing():
    x = torch.randn(3, 3)
    before = torch.get_rng_state()
    assert torch.equal(dropout(x, 0.0), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_follows_torchs_generator_and_takes_empty_tensors():
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropout(torch.ones(10, 3), 0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)


@pytest.mark.parametrize(("rate", "dropped"), [(1e-6, 0), (0.999995, 65535)])
def test_rates_that_round_to_none_or_all(rate, dropped):
    """One number of 2^16 at least keeps an element; a rate that drops none draws no numbers."""
    assert dropped_steps(rate) == dropped
    before = torch.get_rng_state()
    y = dropout(torch.ones(1000), rate)
    assert y.isfinite().all()
    assert torch.equal(torch.get_rng_state(), before) == (dropped == 0)
