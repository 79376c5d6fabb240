"""The forward pass in tiles: provisional tables, readings, conditioned tables, and which sequences they lose.

Launches at most 5 nb + 5 kernels for nb = ⌈(T+1)/NB⌉ blocks, without waiting for the device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.operators.common.gpu import Lane, dot_precision, gpu_kernels, launch, power_of_two
from structattn.operators.nondeterministic_stack.arguments import Arguments
from structattn.operators.nondeterministic_stack.gpu.tiles import ROWS, Provisional, Shares, Tiling

SEGMENT = 16  # steps of a chain of provisional weights; as in prepare_gpu_kernel.py
SMALLEST = {torch.float32: 1e-30, torch.float64: 1e-290}  # share below which a number is lost
LARGEST_LOSS = {torch.float32: 1e-9, torch.float64: 1e-20}  # of all runs
_KERNELS = "nondeterministic_stack.gpu"
FAR = 4  # the least anti-diagonal whose tiles have blocks between them besides the nearest two


@dataclass(frozen=True)
class Forward:
    """Results of one pass.

    Attributes:
        readings: (B, T, Q, S, m).
        log_weight: (B, T).
        shares: the conditioned tables.
        log_alpha: log of the weights of prefixes, (B, T+1, C) float64.
        failed: (B,) int32, 1 for sequences that the tables do not hold.
    """

    readings: Tensor
    log_weight: Tensor
    shares: Shares
    log_alpha: Tensor
    failed: Tensor


def vectors(given: Arguments) -> tuple[Tensor, Tensor]:
    """Return pushed vectors and bottom vector; unit vectors if the weights over positions are computed."""
    if given.values is not None and given.bottom is not None:
        return given.values.contiguous(), given.bottom.contiguous()
    batch, time = given.push.shape[:2]
    units = torch.eye(time + 1, dtype=given.push.dtype, device=given.push.device)
    return units[1:].repeat(batch, 1, 1), units[0]


def tiling_of(given: Arguments) -> Tiling:
    """Return the sizes of the tables of a batch."""
    batch, time, states, symbols = given.push.shape[:4]
    window = time if given.window is None else min(given.window, time)
    return Tiling(batch, time, states, symbols, window, max(ROWS, power_of_two(states)))


def forward(given: Arguments, dtype: torch.dtype, *, tf32: bool, log_p: Tensor | None = None) -> Forward:
    """Compute everything with tables of a dtype, scaled by the mean field's p or the given one; lengths are in range.

    ``tf32`` allows products of float32 tables to be rounded to TF32.
    """
    tiling = tiling_of(given)
    lengths = given.lengths.clamp(0, tiling.time).int()  # no length leads out of the tensors
    tables = _provisional(given, tiling, lengths, dtype, log_p)
    values, bottom = vectors(given)
    x = _filled(tables, tiling, lengths, values, bottom, dot_precision(dtype, tf32))
    return _conditioned(given, tiling, lengths, tables, x, values.shape[2])


def _provisional(
    given: Arguments, tiling: Tiling, lengths: Tensor, dtype: torch.dtype, log_p: Tensor | None
) -> Provisional:
    """Return the scaled transitions, with P and w allocated."""
    B, T, C, Q = tiling.batch, tiling.time, tiling.configurations, tiling.states
    kernels = gpu_kernels(f"{_KERNELS}.prepare_gpu_kernel")
    logits = given.push, given.replace, given.pop
    sizes = {"Q": Q, "S": tiling.symbols, "CP": power_of_two(C), "num_warps": 1}
    segments = -(-T // SEGMENT)
    double = {"dtype": torch.float64, "device": given.push.device}
    totals = torch.empty(B, segments, **double)  # type: ignore[call-overload]
    relative = torch.empty(B, T + 1, C, **double) if log_p is None else log_p  # type: ignore[call-overload]
    if log_p is None:
        launch(kernels.mean_field, (segments, B), (*logits, lengths, relative, totals), T, **sizes)
    absolute, log_g = torch.empty_like(relative), torch.empty(B, T + 1, **double)  # type: ignore[call-overload]
    push, replace = (totals.new_empty(B, T, C, C, dtype=dtype) for _ in range(2))
    pop, factor = totals.new_empty(B, T, C, Q, dtype=dtype), totals.new_empty(B, T + 1, C, dtype=dtype)
    launch(
        kernels.scale,
        (T + 1, B),
        (*logits, lengths, relative, totals, absolute, log_g, push, replace, pop, factor),
        T,
        **sizes,
        RELATIVE=log_p is None,
    )
    P, w = (totals.new_empty(tiling.table, dtype=dtype) for _ in range(2))
    return Provisional(absolute, log_g, push, replace, pop, factor, P, w)


def _filled(
    tables: Provisional, tiling: Tiling, lengths: Tensor, values: Tensor, bottom: Tensor, precision: str
) -> Tensor:
    """Compute P^ and w^, and return b and x: (B, parts, T+1, C, MB) float64, the first column of each part is b.

    Four lanes run beside each other: the anti-diagonal d; products for d + 1, all but the nearest, which need spans to
    d - 1; block d of x, which needs the tiles of column d alone; and what block d + 1 takes from the blocks before d.
    """
    M, device = values.shape[2], values.device
    MB = power_of_two(max(M + 1, 16), 32)
    parts = max(-(-M // (MB - 1)), 1)
    x = tables.log_p.new_empty(tiling.batch, parts, tiling.time + 1, tiling.configurations, MB)
    sums_of_x = [x.new_empty(tiling.batch, parts, tiling.symbols, tiling.rows, MB) for _ in range(2)]
    sums = [tables.P.new_empty(tiling.batch, tiling.blocks, *tiling.table[2:]) for _ in range(2)]
    rows = Lane(device)
    products, prefixes, sums_of_prefixes = (Lane(device, aside=True) for _ in range(3))
    summed = summed_x = solved_x = None
    for d in range(tiling.blocks):
        if d < tiling.diagonals:
            with products.after(rows.mark()):
                if FAR <= d + 1 < tiling.diagonals:
                    _products(tables, tiling, lengths, sums[(d + 1) % 2], d + 1, precision)
            with rows.after(summed):
                if d > 1:
                    _products(tables, tiling, lengths, sums[d % 2], d, precision, nearest=True)
                _rows(tables, tiling, lengths, sums[d % 2], d)
            summed = products.mark()
        with sums_of_prefixes.after(rows.mark(), solved_x):
            if 2 <= d < tiling.blocks - 1 and tiling.diagonals > 2:
                _earlier_blocks(tables, tiling, lengths, x, sums_of_x[(d + 1) % 2], d + 1)
        with prefixes.after(rows.mark(), summed_x):
            _corrections(tables, tiling, lengths, (values, bottom), x, sums_of_x[d % 2], d)
        summed_x, solved_x = sums_of_prefixes.mark(), prefixes.mark()
    with rows.after(products.mark(), summed_x, solved_x):
        return x


def _earlier_blocks(tables: Provisional, tiling: Tiling, lengths: Tensor, x: Tensor, sums: Tensor, block: int) -> None:
    """Sum what a block of x takes from all earlier blocks but the first and the one before it."""
    launch(
        gpu_kernels(f"{_KERNELS}.prefixes_gpu_kernel").earlier_blocks,
        (tiling.symbols, x.shape[1], tiling.batch),
        (tables.w, lengths, x, sums),
        *(block, tiling.diagonals, tiling.tiles, tiling.time),
        **_sizes(tiling),
        MB=x.shape[-1],
        num_warps=4,
    )


def _corrections(
    tables: Provisional,
    tiling: Tiling,
    lengths: Tensor,
    vectors_: tuple[Tensor, Tensor],
    x: Tensor,
    sums: Tensor,
    block: int,
) -> None:
    """Compute a block of x."""
    launch(
        gpu_kernels(f"{_KERNELS}.prefixes_gpu_kernel").corrections,
        (x.shape[1], tiling.batch),
        (tables.w, tables.push, tables.replace, *vectors_, lengths, x, sums),
        *(block, tiling.diagonals, tiling.tiles, tiling.time, vectors_[0].shape[2]),
        **_sizes(tiling),
        CP=tiling.padded,
        MB=x.shape[-1],
        num_warps=4,
    )


def _products(
    tables: Provisional,
    tiling: Tiling,
    lengths: Tensor,
    sums: Tensor,
    d: int,
    precision: str,
    *,
    nearest: bool = False,
) -> None:
    """Sum over the blocks between those of the tiles (J, J + d) but for the nearest; or add these."""
    launch(
        gpu_kernels(f"{_KERNELS}.tiles_gpu_kernel").gemm,
        (tiling.blocks - d, tiling.symbols, tiling.batch),
        (tables.P, tables.w, sums, lengths),
        *(d, tiling.blocks, tiling.tiles),
        **_sizes(tiling),
        PRECISION=precision,
        NEAREST=nearest,
        num_warps=4,
        num_stages=3,  # it only reads what earlier launches wrote
    )


def _rows(tables: Provisional, tiling: Tiling, lengths: Tensor, sums: Tensor, d: int) -> None:
    """Compute tiles (J, J + d) of P^ and w^."""
    launch(
        gpu_kernels(f"{_KERNELS}.tiles_gpu_kernel").solve,
        (tiling.blocks - d, tiling.batch),
        (tables.P, tables.w, sums, tables.push, tables.replace, tables.pop, tables.factor, lengths),
        *(d, tiling.blocks, tiling.tiles, tiling.time, tiling.window),
        **_sizes(tiling),
        QP=power_of_two(tiling.states),
        SP=power_of_two(tiling.symbols),
        KB=tiling.rows_at_a_time,
        DIAGONAL=d == 0,
        FAR=d > 1,
        num_warps=1,
    )


def _sizes(tiling: Tiling) -> dict[str, int]:
    return {"Q": tiling.states, "S": tiling.symbols, "NP": tiling.rows}


def _conditioned(given: Arguments, tiling: Tiling, lengths: Tensor, tables: Provisional, x: Tensor, M: int) -> Forward:
    """Turn the provisional tables, in place, into conditioned ones; compute readings and what was lost."""
    B, T, Q, S, C = tiling.batch, tiling.time, tiling.states, tiling.symbols, tiling.configurations
    CP, dtype = power_of_two(C), tables.P.dtype
    logits = given.push, given.replace, given.pop
    readings, log_weight = given.push.new_empty(B, T, Q, S, M), given.push.new_empty(B, T)
    a, log_alpha, b = (x.new_empty(B, T + 1, C) for _ in range(3))
    E = x.new_empty(B, T + 1, C, M)
    ratio, reach, most = (x.new_empty(B, T + 1) for _ in range(3))
    growth, grown = x.new_empty(B, T), x.new_empty(B, T, CP, 2 * CP)
    factor = torch.empty_like(tables.factor)
    sizes = {"Q": Q, "S": S, "CP": CP, "num_warps": 1}
    launch(
        gpu_kernels(f"{_KERNELS}.prefixes_gpu_kernel").readings,
        (T + 1, B),
        (
            *(*logits, lengths, tables.log_p, tables.log_g, x, readings, log_weight, a, E, log_alpha),
            *(tables.push, tables.replace, factor, b, ratio, growth, reach, grown),
        ),
        *(T, M, x.shape[1]),
        **sizes,
        MB=x.shape[-1],
        SMALLEST=SMALLEST[dtype],
    )
    failed = lengths.new_zeros(B)
    kernels = gpu_kernels(f"{_KERNELS}.shares_gpu_kernel")
    launch(kernels.regrowth, (B,), (grown, growth, lengths, most, reach, failed), T, **sizes)
    loss = x.new_zeros(B, tiling.tiles * S)
    launch(
        kernels.condition,
        (tiling.blocks, tiling.diagonals * S, B),
        (tables.P, tables.w, lengths, b, ratio, most, reach, loss),
        *(tiling.blocks, tiling.tiles, T, tiling.window),
        **_sizes(tiling),
        SMALLEST=SMALLEST[dtype],
        num_warps=4,
    )
    failed |= ~(loss.sum(1) <= LARGEST_LOSS[dtype])
    shares = Shares(lengths, tables.push, tables.replace, factor, tables.P, tables.w, a, E)
    return Forward(readings, log_weight, shares, log_alpha, failed)
