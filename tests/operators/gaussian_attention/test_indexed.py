"""Hard-coded attention to rows of a store: the bits of what copies of them give."""

import pytest
import torch

from structattn.operators import gaussian_attention
from structattn.operators.gaussian_attention import Gaussians
from structattn.operators.gaussian_attention.cpu import gaussian_attention_indexed

HEADS, ROWS = 3, 50
KINDS = [
    {},
    {"kernel": "window"},
    {"kernel": "index"},
    {"ratio": 0.7, "floor": True},
    {"causal": True},
    {"normalize": True},
]


def stored(batch, keys, size, dtype=torch.float64):
    """Values and row_indices, with rows that nobody reads full of NaN."""
    generator = torch.Generator().manual_seed(batch + keys)
    rows = torch.randn(ROWS, HEADS, size, generator=generator, dtype=torch.float64).to(dtype)
    row_indices = torch.randint(0, ROWS - 1, (batch, keys), generator=generator)
    rows[~torch.isin(torch.arange(ROWS), row_indices)] = torch.nan
    return rows, row_indices


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 9, 16), (5, 40, 37), (4, 0, 3)])  # B, S, d
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("first", [0, 8, 60])
def test_has_the_bits_of_copies(dtype, kind, sizes, ended, first):
    values, row_indices = stored(*sizes, dtype)
    heads = Gaussians((-1, 0, 0.4), **kind)
    lengths = torch.arange(sizes[0]).clamp(max=sizes[1]) if ended else None
    found = gaussian_attention_indexed(values, row_indices, heads, first=first, memory_lengths=lengths)
    ends = {"lengths": None if lengths is None else torch.ones_like(lengths), "memory_lengths": lengths}
    copies = values[row_indices].transpose(1, 2)
    wanted = gaussian_attention(copies, (-1, 0, 0.4), queries=1, first=first, **kind, **ends)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("index", [-1, ROWS, 2**40])
def test_rows_that_are_not_there(index):
    values, row_indices = stored(3, 7, 8)
    row_indices[1, 3] = index
    with pytest.raises(IndexError, match=r"row_indices contain -?\d+; expected 0 to \d+"):
        gaussian_attention_indexed(values, row_indices, Gaussians((0, 0, 0)), first=6)


def test_what_does_not_fit():
    values, row_indices = stored(3, 7, 8)
    with pytest.raises(ValueError, match=r"values has shape \(50, 3, 8\)"):
        gaussian_attention_indexed(values, row_indices, Gaussians((0, 0)), first=6)
    with pytest.raises(ValueError, match=r"row_indices has shape \(7,\)"):
        gaussian_attention_indexed(values, row_indices[0], Gaussians((0, 0, 0)), first=6)
    with pytest.raises(ValueError, match="row_indices has dtype"):
        gaussian_attention_indexed(values, row_indices.int(), Gaussians((0, 0, 0)), first=6)
    with pytest.raises(RuntimeError, match="no gradient"):
        gaussian_attention_indexed(values.requires_grad_(), row_indices, Gaussians((0, 0, 0)), first=6)
