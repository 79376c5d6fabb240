"""Sinusoidal positions."""

import itertools
import math

import pytest
import torch

from structattn.attention.positions import SinusoidalPositions

# width, layout, base, denominator
VARIANTS = list(itertools.product([1, 2, 5, 8], ["interleaved", "halves"], [10000.0, 256.0], ["d", "d-2"]))


def by_formula(t, c, d_model, layout="interleaved", base=10000.0, denominator="d"):
    """Component c of the vector at position t, the formula's i and wave found by counting."""
    frequencies = range(0, d_model, 2)
    sines = [(math.sin, i) for i in frequencies]
    cosines = [(math.cos, i) for i in frequencies]
    if layout == "halves":
        wave, i = (sines + cosines)[c]
    else:
        wave, i = [pair for both in zip(sines, cosines, strict=True) for pair in both][c]
    below = d_model if denominator == "d" else d_model - 2
    return wave(t / base ** (i / below if i else 0))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_formula(variant):
    table = SinusoidalPositions(*variant)(0, 4)
    for t in range(4):
        for c in range(variant[0]):
            assert table[t, c].item() == pytest.approx(by_formula(t, c, *variant), abs=1e-7)


def test_the_default_is_exactly_what_it_was():
    d_model, time = 6, torch.arange(9, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    waves = torch.stack([torch.sin(time * frequency), torch.cos(time * frequency)], dim=-1)
    assert torch.equal(SinusoidalPositions(d_model)(0, 9), waves.flatten(1).float())


def test_the_last_wave_of_the_smaller_denominator_has_the_length_of_the_base():
    positions = SinusoidalPositions(8, layout="halves", base=100.0, denominator="d-2")
    assert positions(100, 1)[0, 3].item() == pytest.approx(math.sin(1.0), abs=1e-6)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_beyond_what_is_kept_nothing_changes(direction):
    positions = SinusoidalPositions(6, direction=direction)
    whole = positions(0, 1030)
    assert whole.shape == (1030, 6)
    for first, count in [(0, 1024), (1020, 4), (1020, 5), (1029, 1), (7, 0)]:
        assert torch.equal(positions(first, count, 1030), whole[first : first + count])
    assert positions.double()(1025, 2, 1030).dtype == torch.float64
    assert positions.state_dict() == {}


def test_backward_counts_from_the_length_down_to_one():
    forward, backward = SinusoidalPositions(6), SinusoidalPositions(6, direction="backward")
    assert torch.equal(backward(0, 5), forward(1, 5).flip(0))
    assert torch.equal(backward(2, 3, total=7), forward(1, 5).flip(0)[:3])
    assert backward(0, 0).shape == (0, 6)


def test_backward_cannot_go_step_by_step():
    with pytest.raises(ValueError, match=r"position 3 needs the total length.*cannot go step by step"):
        SinusoidalPositions(6, direction="backward")(3, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "thirds"}, "layout='thirds'; expected 'interleaved' or 'halves'"),
        ({"denominator": "d-1"}, "denominator='d-1'; expected 'd' or 'd-2'"),
        ({"direction": "up"}, "direction='up'; expected 'forward' or 'backward'"),
        ({"base": 0.0}, "base=0.0; expected 0 < base"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        SinusoidalPositions(6, **options)
