"""Products with some outputs of a layer equal those outputs of the whole layer."""

import pytest
import torch
from torch.nn import functional as F

from structattn.operators.common.kernels import has_kernel
from structattn.operators.linear.selected import select_outputs, selected_linear

needs_kernel = pytest.mark.skipif(not has_kernel("selected_linear_float32"), reason="the kernels were not built")
SIZES = [(0, 3, 4, 1), (1, 1, 1, 1), (5, 7, 9, 3), (13, 63, 50, 41), (29, 288, 70, 33)]  # rows, inputs, outputs, chosen


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def lists_of(outputs, chosen):
    """Return three lists of one, some and all columns, in ascending order."""
    lists = torch.full((3, chosen), -1)
    for row, length in enumerate((1, (chosen + 1) // 2, chosen)):
        lists[row, :length] = torch.randperm(outputs)[:length].sort().values
    return lists


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_outputs_are_those_of_the_whole_layer(sizes, bias, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, inputs, outputs, chosen = sizes
    x, weight, added = numbers(rows, inputs), numbers(outputs + 2, inputs)[2:], numbers(outputs) if bias else None
    lists, list_of_row = lists_of(outputs, chosen), torch.arange(rows) // 4 % 3
    found = selected_linear(x, (weight, added), lists, list_of_row)
    expected = select_outputs(F.linear(x, weight, added), lists, list_of_row)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-5)  # sums of 288 products


@needs_kernel
def test_a_row_does_not_depend_on_the_others():
    x, layer, lists = numbers(9, 33), (numbers(20, 33), None), lists_of(20, 15)
    together = selected_linear(x, layer, lists, torch.tensor([2, 2, 2, 2, 1, 1, 0, 2, 2]))
    assert torch.equal(selected_linear(x[3:4], layer, lists[2:], torch.tensor([0])), together[3:4])


@needs_kernel
@pytest.mark.parametrize(("lists", "list_of_row"), [([[0, 5]], [0]), ([[0, 1]], [1])])
def test_numbers_out_of_range_are_refused(lists, list_of_row):
    with pytest.raises(IndexError, match="expected"):
        selected_linear(numbers(1, 3), (numbers(5, 3), None), torch.tensor(lists), torch.tensor(list_of_row))


def test_inputs_of_another_width_are_refused_and_indices_may_be_int32():
    lists, rows = torch.tensor([[0, 4]]), torch.tensor([0])
    with pytest.raises((ValueError, RuntimeError), match="shape"):
        selected_linear(numbers(1, 2), (numbers(5, 3), None), lists, rows)
    x, layer = numbers(1, 3), (numbers(5, 3), None)
    found = selected_linear(x, layer, lists.int(), rows.int())
    torch.testing.assert_close(found, F.linear(x, layer[0])[:, [0, 4]])
