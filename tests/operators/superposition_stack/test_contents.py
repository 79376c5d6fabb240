"""The contents of a superposition stack, against the enumeration of ordinary stacks whose actions are drawn."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from structattn.operators import stack_pointer_weights, superposition_stack_weights
from structattn.operators.superposition_stack.reference import superposition_stack_contents


def actions(batch, time, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(batch, time, 3, generator=generator, dtype=torch.float64), -1)


def enumerated(probabilities, depths, limit=None):
    """Height, P(height >= d) and positions, over all sequences of independent actions."""
    time = len(probabilities)
    height, at_least = torch.zeros(time).double(), torch.zeros(time, depths).double()
    positions = torch.zeros(time, depths, time + 1).double()
    for length in range(1, time + 1):
        for chosen in itertools.product(range(3), repeat=length):
            share, stack = 1.0, []
            for t, action in enumerate(chosen):
                share *= float(probabilities[t, action])
                stack = [[t + 1, *stack], stack, stack[1:]][action]
                stack = stack[:limit]
            height[length - 1] += share * len(stack)
            for depth, step in enumerate(stack[:depths]):
                at_least[length - 1, depth] += share
                positions[length - 1, depth, step] += share
    return height, at_least, positions


@pytest.mark.parametrize("limit", [None, 2])
def test_contents_are_those_of_all_ordinary_stacks(limit):
    given = actions(1, 5)
    found = superposition_stack_contents(given, 4, limit=limit)
    for got, want in zip((found.height, found.at_least, found.positions), enumerated(given[0], 4, limit), strict=True):
        assert_close(got[0], want, rtol=0, atol=1e-14)
    assert found.symbols is None


def test_the_top_is_what_is_read():
    given, lengths = actions(3, 7), torch.tensor([7, 2, 0])
    found = superposition_stack_contents(given, 2, lengths=lengths)
    assert_close(found.positions[:, :, 0, 1:], superposition_stack_weights(given, lengths=lengths))
    pointers = stack_pointer_weights(given, lengths=lengths)
    assert_close(found.positions[:, :, 0, 1:], pointers[..., 1:])
    here = torch.arange(7) < lengths[:, None]
    assert_close(pointers[..., 0][here], 1 - found.at_least[..., 0][here])
    assert (found.height[~here] == 0).all()
    assert (found.positions[~here] == 0).all()


def test_errors():
    with pytest.raises(ValueError, match=r"actions has shape \(1, 5, 2\)"):
        superposition_stack_contents(actions(1, 5)[..., :2])
    with pytest.raises(ValueError, match="depths=-1; expected at least 1"):
        superposition_stack_contents(actions(1, 5), -1)
