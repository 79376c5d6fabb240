"""Learned positions."""

import pytest
import torch

from structattn.attention.positions import LearnedPositions


def test_each_position_has_its_own_row():
    positions = LearnedPositions(4, max_positions=9)
    assert torch.equal(positions(0, 9), positions.table)
    assert torch.equal(positions(3, 2), positions.table[3:5])
    (gradient,) = torch.autograd.grad(positions(3, 2).sum(), positions.table)
    assert torch.equal(gradient, torch.tensor([0.0] * 3 + [1.0] * 2 + [0.0] * 4)[:, None].expand(9, 4))


def test_they_end_somewhere():
    positions = LearnedPositions(4, max_positions=9)
    assert positions(9, 0).shape == (0, 4)
    with pytest.raises(ValueError, match="the sequence has 10 positions; the model has 9 learned positions"):
        positions(8, 2)
    with pytest.raises(ValueError, match="max_positions=0"):
        LearnedPositions(4, max_positions=0)
    with pytest.raises(ValueError, match="d_model=0; expected at least 1"):
        LearnedPositions(0, max_positions=4)
