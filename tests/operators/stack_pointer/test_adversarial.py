"""Hostile numbers: no finite input gives NaN, and all ways agree with the definition."""

import os

import pytest
import torch

from structattn.operators import stack_pointer, stack_pointer_weights
from structattn.operators.stack_pointer.cpu import readings_by_map, readings_by_stack

# 500 here; STRUCTATTN_ADVERSARIAL=10000 runs the promise in full.
CASES = int(os.environ.get("STRUCTATTN_ADVERSARIAL", "500"))
BATCH = 20


@pytest.mark.parametrize("case", range(CASES // BATCH))
def test_hostile_numbers(case, hostile, hostile_actions):
    generator = torch.Generator().manual_seed(case)
    time, vector = (int(torch.randint(1, end, (), generator=generator)) for end in (40, 20))
    given = [hostile_actions(generator, (BATCH, time, 3)), hostile(generator, (BATCH, time + 1, vector))]
    cotangent = hostile(generator, (BATCH, time, vector))
    lengths = torch.randint(time + 1, (BATCH,), generator=generator)

    def results(function, *leaves):
        leaves = [x.clone().requires_grad_() for x in leaves]
        y = function(*leaves)
        weight = cotangent if y.shape == cotangent.shape else torch.ones_like(y)
        return y.detach(), torch.autograd.grad(y, leaves, weight), float(weight.norm())

    def readings(*leaves):
        return stack_pointer(*leaves, lengths=lengths, implementation="reference")

    def weights(implementation):
        return lambda a: stack_pointer_weights(a, lengths=lengths, implementation=implementation)

    for way in (readings_by_map, readings_by_stack):
        compare(results(lambda *leaves, way=way: way(*leaves, lengths), *given), results(readings, *given))
    compare(results(weights("cpu"), given[0]), results(weights("reference"), given[0]))


def compare(found, wanted):
    (y, gradients, _), (r, wanted_gradients, cotangent) = found, wanted
    assert y.isfinite().all()
    assert float((y - r).norm()) <= 1e-12 * max(float(r.norm()), 1e-300)
    for x, g in zip(gradients, wanted_gradients, strict=True):
        assert x.isfinite().all()
        assert float((x - g).norm()) <= 1e-10 * max(float(g.norm()), cotangent, 1e-300)
