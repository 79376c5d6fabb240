"""The backward kernels, table by table against their reference and against autograd of the definition."""

import dataclasses

import adjoints_reference
import pytest
import torch
from tiles_reference import (
    corrections,
    provisional_tables,
    shares,
    tiles_of,
    unpacked,
    vectors,
)

from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.gpu.backward import adjoints, gradients
from structattn.operators.nondeterministic_stack.gpu.tiles import Tiling
from structattn.operators.nondeterministic_stack.reference import reference_readings

ROWS = 16  # small tiles: more of them
IN_PRECISION = ("push", "replace", "factor", "R", "W")


def tables_of(given, window, dtype=torch.float64):
    """Shares as the forward would give them: unwritten tiles beyond the window hold NaN."""
    B, T, Q, S = given.push.shape[:4]
    tiling = Tiling(B, T, Q, S, T if window is None else min(window, T), ROWS)
    provisional = provisional_tables(given, tiling)
    tables = shares(given, tiling, provisional.log_p, corrections(given, provisional, tiling))
    for row in range(tiling.blocks):
        for column in range(row + tiling.diagonals, tiling.blocks):
            tables.R[:, column * (column + 1) // 2 + row] = torch.nan
            tables.W[:, column * (column + 1) // 2 + row] = torch.nan
    return dataclasses.replace(tables, **{name: getattr(tables, name).to(dtype) for name in IN_PRECISION}), tiling


def moved(tables, device):
    return dataclasses.replace(
        tables, **{x.name: getattr(tables, x.name).to(device) for x in dataclasses.fields(tables)}
    )


def example(random_inputs, sizes, window, *, scale=2.0, weights=False):
    """Arguments with some forbidden transitions, and cotangents, of sequences of length T, T // 2 and 0."""
    inputs = random_inputs(*sizes, scale=scale)
    inputs.push[0, :, 0, 0, 0, 0] = -torch.inf
    inputs.pop[-1, ::2] = -torch.inf
    batch, time, Q, S, m = sizes
    lengths = torch.tensor([time, time // 2, 0][:batch])
    vectors_ = (None, None) if weights else (inputs.values, inputs.bottom)
    generator = torch.Generator().manual_seed(3)
    columns = time + 1 if weights else m
    grad_readings = torch.randn(batch, time, Q, S, columns, generator=generator, dtype=torch.float64)
    grad_log_weight = torch.randn(batch, time, generator=generator, dtype=torch.float64)
    return checked_arguments(*inputs.logits, *vectors_, lengths, window), grad_readings, grad_log_weight


def definition(given, grad_readings, grad_log_weight):
    leaves = [x for x in given[:5] if x is not None]
    leaves = [x.detach().requires_grad_() for x in leaves]
    arguments = given._replace(**dict(zip(("push", "replace", "pop", "values", "bottom"), leaves, strict=False)))
    return torch.autograd.grad(
        reference_readings(arguments), leaves, (grad_readings, grad_log_weight), materialize_grads=True
    )


def assert_near(found, wanted, tolerance, size):
    assert float((found.cpu().double() - wanted).norm()) <= tolerance * max(float(wanted.norm()), size)


def assert_equals_definition(given, window, cotangents, gpu, dtype, tolerance):
    tables, tiling = tables_of(given, window, dtype)
    values = vectors(given)[0].to(gpu, dtype)
    found = gradients(moved(tables, gpu), tiling, values, *(x.to(gpu, dtype) for x in cotangents), "ieee")
    assert all(x.dtype == dtype for x in found)
    wanted = definition(given, *cotangents)
    size = sum(float(x.norm()) ** 2 for x in cotangents) ** 0.5
    for x, r in zip([*found[:4], found[4].sum(0)], wanted, strict=False):
        assert_near(x, r, tolerance, size)
    return found


SIZES = [(3, 9, 2, 3, 2, torch.float64), (1, 2, 1, 1, 1, torch.float32), (1, 6, 3, 2, 1, torch.float32)]
MORE = [(2, 16 // Q + 1, Q, S, 2, torch.float64) for Q in (1, 2, 3) for S in (1, 2, 3)]
MORE += [(2, T, 2, 3, 5, dtype) for T in (0, 1, 7, 8, 21) for dtype in (torch.float32, torch.float64)]
SLOW = [pytest.param(*sizes, marks=pytest.mark.slow) for sizes in MORE]


@pytest.mark.parametrize(("batch", "time", "states", "symbols", "vector", "dtype"), SIZES + SLOW)
def test_gradients_equal_the_definition(random_inputs, gpu, batch, time, states, symbols, vector, dtype):
    given, *cotangents = example(random_inputs, (batch, time, states, symbols, vector), None)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert_equals_definition(given, None, cotangents, gpu, dtype, tolerance)


@pytest.mark.parametrize(
    ("time", "states", "window"),
    [(11, 3, 1), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((25, 2, 1), (25, 2, 7), (25, 2, 8), (25, 2, 9)))],
)
def test_window(random_inputs, gpu, time, states, window):
    """Tiles that no window reaches are neither read nor written."""
    given, *cotangents = example(random_inputs, (1, time, states, 2, 1), window)
    assert_equals_definition(given, window, cotangents, gpu, torch.float64, 1e-12)


@pytest.mark.parametrize(("time", "columns"), [(4, 0), pytest.param(40, 40, marks=pytest.mark.slow)])
def test_weights_over_positions(random_inputs, gpu, time, columns):
    """Unit vectors, more of them than a tile has columns; and no column at all: the log-weight alone."""
    given, grad_readings, grad_log_weight = example(random_inputs, (2, time, 1, 2, columns), None, weights=columns > 0)
    tables, tiling = tables_of(given, None)
    values = vectors(given)[0].to(gpu)
    found = gradients(moved(tables, gpu), tiling, values, grad_readings.to(gpu), grad_log_weight.to(gpu), "ieee")
    if columns == 0:
        given, grad_readings = (
            given._replace(values=None, bottom=None),
            grad_readings.new_zeros(2, time, 1, 2, time + 1),
        )
    for x, r in zip(found[:3], definition(given, grad_readings, grad_log_weight), strict=True):
        assert_near(x, r, 1e-12, float(grad_log_weight.norm()))


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 5])
def test_adjoints_equal_the_reference(random_inputs, gpu, window):
    given, *cotangents = example(random_inputs, (2, 21, 2, 3, 2), window)
    tables, tiling = tables_of(given, window)
    values = vectors(given)[0]
    written = dataclasses.replace(tables, R=tables.R.nan_to_num(), W=tables.W.nan_to_num())
    masked = adjoints_reference.cotangents(*cotangents, given.lengths)
    wanted_y = adjoints_reference.prefix_adjoints(written, tiling, values, masked)
    exponents = torch.zeros(2, dtype=torch.int32, device=gpu)
    on_gpu = [x.to(gpu) for x in (values, *cotangents)]
    y, *cells = adjoints(moved(tables, gpu), tiling, *on_gpu, exponents, "ieee")
    assert_near(y, wanted_y, 1e-14, 0)
    unwritten = torch.ones(2, tiling.tiles, 1, 1, 1, dtype=torch.bool)
    for sequence, length in enumerate(given.lengths.tolist()):
        unwritten[sequence, tiles_of(tiling, length)] = False
    for table, r in zip(cells, adjoints_reference.cell_adjoints(written, tiling, wanted_y), strict=True):
        assert_near(unpacked(table.cpu().masked_fill(unwritten, 0), tiling), r, 1e-14, 0)


@pytest.mark.slow
def test_a_sequence_without_tables_and_past_the_lengths(random_inputs, gpu):
    """Length 0 marks tables that do not exist; neither they nor NaN past the lengths reach a gradient."""
    given, grad_readings, grad_log_weight = example(random_inputs, (3, 5, 2, 1, 1), None)
    tables, tiling = tables_of(given, None)
    values = given.values.clone()
    wanted = gradients(
        moved(tables, gpu), tiling, values.to(gpu), grad_readings.to(gpu), grad_log_weight.to(gpu), "ieee"
    )
    past = torch.arange(5) >= given.lengths[:, None]
    for x in (values, grad_readings, grad_log_weight):
        x[past] = torch.nan
    for x in dataclasses.fields(tables):
        if x.name != "lengths":
            getattr(tables, x.name)[2] = torch.nan
    found = gradients(
        moved(tables, gpu), tiling, values.to(gpu), grad_readings.to(gpu), grad_log_weight.to(gpu), "ieee"
    )
    for x, r in zip(found, wanted, strict=True):
        assert torch.equal(x, r)
        assert (x[2] == 0).all()


@pytest.mark.slow
def test_only_the_own_length_matters(random_inputs, gpu):
    """Bit by bit: a longer batch adds tiles, not terms."""
    given, *cotangents = example(random_inputs, (2, 20, 2, 2, 2), None)
    tables, tiling = tables_of(given, None)
    found = gradients(moved(tables, gpu), tiling, given.values.to(gpu), *(x.to(gpu) for x in cotangents), "ieee")
    short = Tiling(1, 10, 2, 2, 10, ROWS)
    sizes = {"push": 10, "replace": 10, "factor": 11, "R": short.tiles, "W": short.tiles, "a": 11, "E": 11}
    cut = {name: getattr(tables, name)[1:, :size].contiguous() for name, size in sizes.items()}
    alone = moved(dataclasses.replace(tables, **cut, lengths=tables.lengths[1:]), gpu)
    again = gradients(alone, short, *(x[1:, :10].to(gpu) for x in (given.values, *cotangents)), "ieee")
    for x, r in zip(found[:4], again[:4], strict=True):
        assert torch.equal(x[1:, :10], r)
    assert torch.equal(found[4][1:], again[4])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_cotangents_of_any_size(random_inputs, gpu, size):
    """The adjoints of the cells exceed their cotangents by far, and must not overflow where gradients do not."""
    given, *cotangents = example(random_inputs, (2, 9, 2, 2, 1), None, scale=5.0)
    assert_equals_definition(given, None, [size * x for x in cotangents], gpu, torch.float32, 1e-6)
