"""Sinusoidal positions."""

import math

import pytest
import torch

from structattn.attention.positions import SinusoidalPositions


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_the_formula(width):
    table = SinusoidalPositions(width)(0, 4)
    for t in range(4):
        for c in range(width):
            wave = math.sin if c % 2 == 0 else math.cos
            assert table[t, c].item() == pytest.approx(wave(t / 10000 ** ((c - c % 2) / width)), abs=1e-7)


def test_beyond_what_is_kept_nothing_changes():
    positions = SinusoidalPositions(6)
    whole = positions(0, 1030)
    assert whole.shape == (1030, 6)
    for first, count in [(0, 1024), (1020, 4), (1020, 5), (1029, 1)]:
        assert torch.equal(positions(first, count), whole[first : first + count])
    assert positions.double()(1025, 2).dtype == torch.float64
    assert positions.state_dict() == {}
