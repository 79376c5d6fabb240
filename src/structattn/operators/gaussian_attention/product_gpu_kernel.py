"""The banded product of hard-coded attention and its transpose in Triton: see DERIVATION.md.

Legend: T queries, S keys, d components of a value, K weights of a band; s_i the first key of query i's band. A program
has BLOCK outputs and goes through all rows that any of them needs, each of which is read once.
"""

import triton
import triton.language as tl

_SIZES = ["heads", "queries", "keys", "d", "taps", "tables", "rows"]
_STRIDES = ["source_b", "source_h", "source_t", "output_b", "output_h", "output_t"]


@triton.jit(do_not_specialize=[*_SIZES, *_STRIDES])
def band_product(
    source,
    weights,
    starts,
    lengths,
    memory_lengths,
    output,
    heads,
    queries,
    keys,
    d,
    taps,
    tables,
    rows,
    source_b,
    source_h,
    source_t,
    output_b,
    output_h,
    output_t,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    QUERY_ENDS: tl.constexpr,
    KEY_ENDS: tl.constexpr,
    DOUBLE: tl.constexpr,
):
    """y_i = sum_j w[i, j - s_i] v_j for i < T; if TRANSPOSED, y_j = sum_i w[i, j - s_i] v_i for j < S.

    A row of ``source`` counts only where its weight is not zero, whatever it contains.
    """
    ty: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    b = (tl.program_id(0) // heads).to(tl.int64)
    h = (tl.program_id(0) % heads).to(tl.int64)
    table = (tl.where(tables > 1, b, 0) * heads + h).to(tl.int64)
    starts += table * queries
    weights += table * rows * taps
    row_stride = tl.where(rows > 1, taps, 0)
    query_end, key_end = queries.to(tl.int64), keys.to(tl.int64)
    if QUERY_ENDS:
        query_end = tl.minimum(tl.maximum(tl.load(lengths + b), 0), queries)  # no length leads out of the tensors
    if KEY_ENDS:
        key_end = tl.minimum(tl.maximum(tl.load(memory_lengths + b), 0), keys)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    column = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    if TRANSPOSED:
        size = keys
        here = at < key_end
        first, last = query_end, query_end * 0  # of the queries whose bands reach these keys
        for chunk in range(0, query_end, 256):
            i = chunk + tl.arange(0, 256).to(tl.int64)
            start = tl.load(starts + i, mask=i < query_end, other=0)
            before_end = start < tl.minimum(tl.program_id(1) * BLOCK + BLOCK, key_end)
            reaches = (i < query_end) & before_end & (start + taps > tl.program_id(1) * BLOCK)
            first = tl.minimum(first, tl.min(tl.where(reaches, i, query_end)))
            last = tl.maximum(last, tl.max(tl.where(reaches, i + 1, 0)))
        start = at * 0
    else:
        size = queries
        here = at < query_end
        start = tl.load(starts + at, mask=here, other=0)
        first = tl.maximum(tl.min(tl.where(here, start, key_end)), 0)
        last = tl.minimum(tl.max(tl.where(here, start + taps, 0)), key_end)
    total = tl.zeros([BLOCK, WIDTH], ty)
    source += b * source_b + h * source_h + first * source_t + column
    for row in range(first, last):
        if TRANSPOSED:
            tap = at - tl.load(starts + row)
            query = row
        else:
            tap = row - start
            query = at
        used = here & (tap >= 0) & (tap < taps)
        weight = tl.load(weights + query * row_stride + tap, mask=used, other=0.0)[:, None]
        value = tl.load(source, mask=column < d, other=0.0)[None]
        total += tl.where(weight != 0, weight * value, 0.0)
        source += source_t
    output += b * output_b + h * output_h + at[:, None] * output_t + column[None]
    tl.store(output, total, mask=(at < size)[:, None] & (column < d)[None])
