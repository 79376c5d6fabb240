"""The recurrences in tiles by plain operations against the definition."""

import pytest
import torch
from tiles_reference import (
    corrections,
    packed,
    provisional_tables,
    readings_of,
    shares,
    unpacked,
)

from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.gpu.tiles import Tiling
from structattn.operators.nondeterministic_stack.reference import reference_readings


@pytest.mark.parametrize(
    ("states", "symbols", "time", "rows", "window", "scale"),
    [(2, 3, 20, 16, None, 1.0), (3, 3, 11, 16, 5, 3.0), (1, 2, 20, 16, None, 10.0), (2, 2, 1, 32, None, 1.0)],
)
def test_readings_equal_the_definition(random_inputs, states, symbols, time, rows, window, scale):
    inputs = random_inputs(3, time, states, symbols, scale=scale)
    lengths = torch.tensor([time, max(time - 5, 1), time // 2])
    given = checked_arguments(*inputs.all, lengths, window)
    tiling = Tiling(3, time, states, symbols, min(window or time, time), rows)
    tables = provisional_tables(given, tiling)
    x = corrections(given, tables, tiling)
    for found, wanted in zip(readings_of(given, tables.log_p, x), reference_readings(given), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
    cells = unpacked(tables.w, tiling)
    assert torch.equal(packed(cells, tiling), tables.w)


def test_shares_are_probabilities(random_inputs):
    inputs = random_inputs(2, 20, 2, 3)
    given = checked_arguments(*inputs.all, torch.tensor([20, 7]), None)
    tiling = Tiling(2, 20, 2, 3, 20, 16)
    tables = provisional_tables(given, tiling)
    found = shares(given, tiling, tables.log_p, corrections(given, tables, tiling))
    w = unpacked(found.W, tiling)  # (B, k, y, u, t, r)
    last = found.push.sum(2) + found.replace.sum(2) + w.sum((1, 3))[:, :, 1:].permute(0, 2, 1, 3).flatten(2)
    expected = (torch.arange(20) < given.lengths[:, None]).double()
    torch.testing.assert_close(last, expected[..., None].expand_as(last))
