"""The gradients from conditioned tables, by Triton kernels: equations of tests/operators/adjoints_reference.py.

4 nb + 2 launches and a few operations of torch, none of which waits for the device; nb is the number of blocks.
"""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.gpu import Lane, gpu_kernels, launch, power_of_two
from structattn.operators.nondeterministic_stack.arguments import Gradients
from structattn.operators.nondeterministic_stack.gpu.tiles import Shares, Tiling


def _exponents(grad_readings: Tensor, grad_log_weight: Tensor, lengths: Tensor) -> Tensor:
    """Return the exponent of two of each sequence's largest cotangent, (B,) int32.

    The adjoints of the cells are at most this size divided by the smallest number that the tables keep: the kernels
    compute them for cotangents of size one.
    """
    size = grad_log_weight.abs()
    if grad_readings.shape[-1]:
        size = torch.maximum(size, grad_readings.abs().flatten(2).amax(2))
    size = torch.where(inside(lengths, size.shape[1]), size, 0).amax(1)
    exponents = torch.frexp(torch.where(size.isfinite(), size, 1)).exponent
    return exponents.clamp(-1000, 1000).int()


def gradients(
    shares: Shares,
    tiling: Tiling,
    values: Tensor,
    grad_readings: Tensor,
    grad_log_weight: Tensor,
    precision: str,
) -> Gradients:
    """Return the gradients of push, replace, pop, values and, for each sequence, of the bottom; 0 past the lengths.

    Args:
        shares: tables of which length 0 marks the sequences that have none; their gradients are 0.
        tiling: of the tables.
        values: (B, T, m), rows contiguous; unit vectors, which may be expanded, for weights over positions.
        grad_readings: (B, T, Q, S, m).
        grad_log_weight: (B, T).
        precision: of products of floats, as ``input_precision`` of ``tl.dot``.

    Cost: n³/3·Q³S multiply-adds on tensor cores, n²·NB·Q³S on others; twice the tables' memory.
    """
    B, T, Q, S = tiling.batch, tiling.time, tiling.states, tiling.symbols
    m = grad_readings.shape[-1]
    empty = grad_readings.new_empty
    gradients_ = empty(B, T, Q, S, Q, S), empty(B, T, Q, S, Q, S), empty(B, T, Q, S, Q), empty(B, T, m)
    if B == 0 or T == 0:
        return *gradients_, grad_readings.new_zeros(B, m)
    cotangents = grad_readings.contiguous(), grad_log_weight.contiguous()
    exponents = _exponents(*cotangents, shares.lengths)
    per_sequence = shares.lengths, exponents
    y, R_, W_ = adjoints(shares, tiling, values, *cotangents, exponents, precision)
    launch(
        gpu_kernels("nondeterministic_stack.gpu.logit_gradients_gpu_kernel").step_gradients,
        (T, B),
        (shares.R, R_, W_, shares.push, shares.replace, shares.factor, shares.E, y, values, *per_sequence, *gradients_),
        *(T, tiling.blocks, tiling.diagonals, m, values.stride(0)),
        **_padded(tiling),
        NP=tiling.rows,
        CP=max(power_of_two(tiling.states) * power_of_two(tiling.symbols), 16),
        MB=_columns(m),
        PRECISION=precision,
        num_warps=1,
    )
    bottom_ = y[:, 0, 0, 1:] * torch.exp2(exponents.double())[:, None]
    return *gradients_, bottom_.to(grad_readings.dtype)


def _padded(tiling: Tiling) -> dict[str, int]:
    """Return the states and symbols as the kernels take them, and padded."""
    Q, S = tiling.states, tiling.symbols
    return {"Q": Q, "S": S, "QP": power_of_two(Q), "SP": power_of_two(S)}


def _columns(columns: int) -> int:
    """Return how many columns of y a program takes at a time."""
    return max(power_of_two(1 + columns, 32), 16)


def adjoints(
    shares: Shares,
    tiling: Tiling,
    values: Tensor,
    grad_readings: Tensor,
    grad_log_weight: Tensor,
    exponents: Tensor,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y = (L, Ē), (B, T+1, C, 1+m) float64, and R̄ and W̄ in tiles, all times 2^-exponent.

    Tiles past a sequence's length are not written. Three lanes run beside each other: the anti-diagonal d + 1;
    products for d, all but the nearest, which need spans from d + 2 on; and block d of y, which needs no cell, while
    cells (J, J + d) need y from block d on.
    """
    B, T, m = tiling.batch, tiling.time, grad_readings.shape[-1]
    y = shares.E.new_empty(B, T + 1, tiling.configurations, 1 + m)
    R_, W_ = torch.empty_like(shares.R), torch.empty_like(shares.W)
    launch(
        gpu_kernels("nondeterministic_stack.gpu.prefix_adjoints_gpu_kernel").sources,
        (T + 1, B),
        (shares.a, shares.E, grad_readings, grad_log_weight, shares.lengths, exponents, y),
        *(T, m),
        **_padded(tiling),
        MB=_columns(m),
        num_warps=1,
    )
    diagonal = torch.arange(tiling.blocks, device=y.device)
    slots = shares.R.index_select(1, diagonal * (diagonal + 3) // 2).mT.contiguous()
    sums = [(torch.empty_like(slots), torch.empty_like(slots)) for _ in range(2)]
    rows, products, prefixes = Lane(y.device), Lane(y.device, aside=True), Lane(y.device, aside=True)
    start, summed = rows.mark(), None
    for d in reversed(range(-1, tiling.blocks)):
        if d >= 0:
            with prefixes.after(start):
                _block_of_prefixes(shares, tiling, values, y, d)
        ready = summed
        if 0 <= d < tiling.diagonals:
            with products.after(prefixes.mark(), rows.mark()):
                _products(shares, tiling, y, R_, sums[d % 2], d, precision)
            summed = products.mark()
        if d + 1 < min(tiling.diagonals, tiling.blocks):
            with rows.after(ready):
                if d + 2 < min(tiling.diagonals, tiling.blocks):
                    _products(shares, tiling, y, R_, sums[(d + 1) % 2], d + 1, precision, nearest=True)
                _rows(shares, tiling, (R_, W_), slots, sums[(d + 1) % 2], d + 1)
    with rows.after(prefixes.mark(), products.mark()):
        return y, R_, W_


def _block_of_prefixes(shares: Shares, tiling: Tiling, values: Tensor, y: Tensor, block: int) -> None:
    m = y.shape[-1] - 1
    launch(
        gpu_kernels("nondeterministic_stack.gpu.prefix_adjoints_gpu_kernel").block_of_prefixes,
        (min(block + 1, tiling.diagonals), tiling.batch),
        (shares.W, shares.push, shares.replace, values, shares.lengths, y),
        *(block, tiling.time, tiling.blocks, tiling.diagonals, m, values.stride(0)),
        Q=tiling.states,
        S=tiling.symbols,
        CP=tiling.padded,
        NP=tiling.rows,
        MB=_columns(m),
        num_warps=4,
    )


def _products(
    shares: Shares,
    tiling: Tiling,
    y: Tensor,
    R_: Tensor,
    sums: tuple[Tensor, Tensor],
    d: int,
    precision: str,
    *,
    nearest: bool = False,
) -> None:
    """Sum what cells (J, J + d) take from y and from longer spans but for those longer by one block; or add these."""
    launch(
        gpu_kernels("nondeterministic_stack.gpu.cell_adjoints_gpu_kernel").products,
        (tiling.blocks - d, tiling.symbols, tiling.batch),
        (shares.R, shares.W, R_, shares.E, y, shares.lengths, *sums),
        *(d, tiling.time, tiling.blocks, tiling.diagonals, y.shape[-1] - 1),
        Q=tiling.states,
        S=tiling.symbols,
        NP=tiling.rows,
        MB=_columns(y.shape[-1] - 1),
        PRECISION=precision,
        NEAREST=nearest,
        num_warps=4,
        num_stages=3,
    )


def _rows(
    shares: Shares, tiling: Tiling, cells: tuple[Tensor, Tensor], slots: Tensor, sums: tuple[Tensor, Tensor], d: int
) -> None:
    """Compute cells (J, J + d) of R̄ and W̄."""
    launch(
        gpu_kernels("nondeterministic_stack.gpu.cell_adjoints_gpu_kernel").rows,
        (tiling.blocks - d, tiling.batch),
        (slots, shares.W, *cells, shares.push, shares.replace, shares.factor, shares.lengths, *sums),
        *(d, tiling.time, tiling.blocks, tiling.diagonals, tiling.window),
        **_padded(tiling),
        NP=tiling.rows,
        KB=tiling.rows_at_a_time,
        num_warps=1,
    )
