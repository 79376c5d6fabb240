"""The contents of a stratified stack, against a stack of very thin slices and what is read."""

import pytest
import torch
from torch.testing import assert_close

from structattn.operators import stratified_stack_weights
from structattn.operators.stratified_stack.reference import stratified_stack_contents

SLICES = 100  # in a unit


def actions(batch, time):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, SLICES + 1, (batch, time, 2), generator=generator).double() / SLICES


def sliced(strengths, depths):
    """Positions and height of an ordinary stack of slices, of which a unit is SLICES."""
    stack, positions, height = [], torch.zeros(len(strengths), depths, len(strengths) + 1).double(), []
    for t, (push, pop) in enumerate((SLICES * strengths).round().long().tolist()):
        stack = [t + 1] * push + stack[pop:]
        for depth in range(depths):
            for step in stack[depth * SLICES : (depth + 1) * SLICES]:
                positions[t, depth, step] += 1 / SLICES
        height.append(len(stack) / SLICES)
    return positions, torch.tensor(height, dtype=torch.float64)


def test_contents_are_those_of_a_stack_of_slices():
    given = actions(2, 9)
    given[..., 1] /= 2
    given = (SLICES * given).round() / SLICES
    found = stratified_stack_contents(given, 4)
    for b in range(2):
        positions, height = sliced(given[b], 4)
        assert_close(found.positions[b], positions, rtol=0, atol=1e-12)
        assert_close(found.height[b], height, rtol=0, atol=1e-12)
    assert_close(found.at_least, found.positions.sum(-1))


def test_the_top_unit_is_what_is_read():
    given, lengths = actions(2, 6), torch.tensor([6, 2])
    found = stratified_stack_contents(given, 2, lengths=lengths)
    assert_close(found.positions[:, :, 0, 1:], stratified_stack_weights(given, lengths=lengths))
    assert (found.height[1, 2:] == 0).all()


def test_errors():
    with pytest.raises(ValueError, match=r"actions has shape \(1, 5, 1\)"):
        stratified_stack_contents(actions(1, 5)[..., :1])
