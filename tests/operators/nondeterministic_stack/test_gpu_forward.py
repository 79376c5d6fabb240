"""The forward kernels, table by table against their reference, the guard, and the ladder of ranges."""

import pytest
import torch
from tiles_reference import (
    corrections,
    provisional_tables,
    readings_of,
    shares,
    tiles_of,
)

from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.gpu import forward as forward_module
from structattn.operators.nondeterministic_stack.gpu.forward import forward, tiling_of
from structattn.operators.nondeterministic_stack.gpu.ladder import climb
from structattn.operators.nondeterministic_stack.reference import reference_readings

# What overflows in a compiled kernel warns in an interpreted one; the guard refuses it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 rows, so that short sequences fill several."""

    monkeypatch.setattr(forward_module, "ROWS", 16)


def assert_close(found, wanted, tolerance):
    """Compare relative to the largest number."""
    largest = float(wanted.abs().amax()) if wanted.numel() else 0.0
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=0, atol=tolerance * max(largest, 1e-300))


@pytest.mark.parametrize(
    ("states", "symbols", "time", "window", "dtype"),
    [
        (2, 2, 9, None, torch.float64),
        pytest.param(4, 1, 10, 3, torch.float32, marks=pytest.mark.slow),
        (2, 3, 1, None, torch.float64),
        pytest.param(2, 3, 25, None, torch.float32, marks=pytest.mark.slow),
        pytest.param(3, 3, 17, 5, torch.float64, marks=pytest.mark.slow),
    ],
)
def test_tables_equal_their_reference(random_inputs, gpu, small_tiles, states, symbols, time, window, dtype):
    inputs = random_inputs(2, time, states, symbols, 2, scale=2.0).to(dtype)
    lengths = torch.tensor([time, time // 2])
    given = checked_arguments(*(x.to(gpu) for x in inputs.all), lengths.to(gpu), window)
    exact = checked_arguments(*(x.double() for x in inputs.all), lengths, window)
    tiling, found = tiling_of(exact), forward(given, dtype, tf32=False)
    tables = provisional_tables(exact, tiling)
    x = corrections(exact, tables, tiling)
    wanted, tolerance = shares(exact, tiling, tables.log_p, x), 1e-12 if dtype == torch.float64 else 1e-6
    for result, definition in zip((found.readings, found.log_weight), readings_of(exact, tables.log_p, x), strict=True):
        assert_close(result, definition, tolerance)
    for name in ("lengths", "push", "replace", "factor", "a", "E"):
        assert_close(getattr(found.shares, name), getattr(wanted, name).double(), tolerance)
    for name in ("R", "W"):
        for b, length in enumerate(lengths.tolist()):
            table, definition = (getattr(x, name)[b, tiles_of(tiling, length)] for x in (found.shares, wanted))
            assert_close(table, definition, tolerance)
    assert found.failed.tolist() == [0, 0]


def test_a_sequence_beyond_floats_takes_the_next_rung(random_inputs, gpu, small_tiles):
    """Weights that floats lose, beside an ordinary sequence, and one that doubles lose."""
    inputs = random_inputs(3, 4, 1, 2, 1)
    inputs.push[1, 0], inputs.push[1, 1:], inputs.pop[1, 2] = -100.0, -torch.inf, 200.0
    inputs.push[2, 0], inputs.push[2, 1:], inputs.pop[2, 2] = -800.0, -torch.inf, 1600.0
    given = checked_arguments(*(x.to(gpu, torch.float32) for x in inputs.all), None)
    found, rung = climb(given, tf32=False)
    assert rung.tolist() == [0, 1, 3]
    assert found.shares.lengths.tolist() == [4, 0, 0]
    definition = reference_readings(checked_arguments(*(x.float().double() for x in inputs.all), None))
    for result, wanted in zip((found.readings, found.log_weight), definition, strict=True):
        torch.testing.assert_close(result.double().cpu(), wanted, rtol=2e-6, atol=2e-6)
