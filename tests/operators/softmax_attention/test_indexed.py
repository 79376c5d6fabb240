"""Softmax attention to rows of a cache by index: equal to the definition on copies of the rows."""

import pytest
import torch

from structattn.operators import softmax_attention
from structattn.operators.softmax_attention.cpu import softmax_attention_indexed

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
SIZES = [(1, 1, 1, 1), (3, 7, 8, 8), (5, 66, 9, 13), (4, 0, 3, 2)]  # B, S, D, E
HEADS, ROWS = 2, 50


def stored(batch, keys, size, value_size, dtype=torch.float64):
    """A query, keys and values, and row_indices, with rows that nobody reads full of NaN."""
    generator = torch.Generator().manual_seed(batch + keys)
    query = torch.randn(batch, HEADS, 1, size, generator=generator, dtype=torch.float64)
    rows = torch.randn(ROWS, HEADS, size + value_size, generator=generator, dtype=torch.float64)
    row_indices = torch.randint(0, ROWS - 1, (batch, keys), generator=generator)
    rows[~torch.isin(torch.arange(ROWS), row_indices)] = torch.nan
    return query.to(dtype), *rows.to(dtype).split([size, value_size], dim=2), row_indices


def on_copies(query, keys, values, row_indices, memory_lengths=None):
    """The definition, in float64."""
    key, value = (rows[row_indices].transpose(1, 2).double() for rows in (keys, values))
    lengths = None if memory_lengths is None else torch.ones_like(memory_lengths)
    ends = {"lengths": lengths, "memory_lengths": memory_lengths}
    return softmax_attention(query.double(), key, value, implementation="reference", **ends)


def scale_of(tensors):
    return tensors[0].shape[3] ** -0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("ended", [False, True])
def test_equals_the_definition(dtype, sizes, ended):
    tensors = stored(*sizes, dtype)
    lengths = torch.arange(sizes[0]).clamp(max=sizes[1]) if ended else None
    found = softmax_attention_indexed(*tensors, lengths, scale_of(tensors))
    assert found.dtype == dtype
    torch.testing.assert_close(
        found.double(), on_copies(*tensors, memory_lengths=lengths), rtol=0, atol=TOLERANCE[dtype]
    )


def test_threads_change_nothing(monkeypatch):
    tensors = stored(60, 300, 16, 16)  # more work than one thread is given
    alone = softmax_attention_indexed(*tensors, None, scale_of(tensors))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(softmax_attention_indexed(*tensors, None, scale_of(tensors)), alone)


@pytest.mark.parametrize("index", [-1, ROWS, 2**40])
def test_rows_that_are_not_there(index):
    query, keys, values, row_indices = stored(3, 7, 8, 8)
    row_indices[1, 3] = index
    with pytest.raises(IndexError, match=r"row_indices contain -?\d+; expected 0 to \d+"):
        softmax_attention_indexed(query, keys, values, row_indices, None, 1.0)
