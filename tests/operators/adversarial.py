"""What tests with hostile numbers share: how many cases they draw, and how results are held against the definition."""

import os

import pytest
import torch

# 500 here; STRUCTATTN_ADVERSARIAL=10000 runs the promise in full.
CASES = int(os.environ.get("STRUCTATTN_ADVERSARIAL", "500"))
QUICK = 10  # batches, each of one kind of numbers for each tensor


def batches_of(size):
    """The numbers of the batches of this size that hold the cases."""
    return [pytest.param(number, marks=[pytest.mark.slow] * (number >= QUICK)) for number in range(CASES // size)]


def with_gradients(function, tensors, cotangent):
    """Outputs of a function, and the gradients of the tensors that it is given."""
    leaves = [x.clone().requires_grad_() for x in tensors]
    outputs = function(*leaves)
    return outputs.detach(), torch.autograd.grad(outputs, leaves, cotangent)


def assert_agree(found, wanted, cotangent, *, slopes=True):
    """Outputs and gradients are finite and equal the definition's; gradients only where the slopes are determined."""
    (outputs, gradients), (wanted_outputs, wanted_gradients) = found, wanted
    assert outputs.isfinite().all()
    assert float((outputs - wanted_outputs).norm()) <= 1e-12 * max(float(wanted_outputs.norm()), 1e-300)
    for x, r in zip(gradients, wanted_gradients, strict=True):
        assert x.isfinite().all()
        size = max(float(r.norm()), float(cotangent.norm()), 1e-300)
        assert not slopes or float((x - r).norm()) <= 1e-10 * size
