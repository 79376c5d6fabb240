"""Products with some outputs of a linear layer, other ones for each row."""

import math

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from structattn.operators.common.kernels import contiguous_rows, has_kernel, kernel_module
from structattn.operators.linear.packed import Linear


def select_outputs(
    y: Float[Tensor, "rows outputs"], lists: Int[Tensor, "lists chosen"], list_of_row: Int[Tensor, " rows"]
) -> Float[Tensor, "rows chosen"]:
    """Return y_r[lists[list_of_row_r]], and -inf where a list holds a negative number, which marks its end."""
    chosen = lists.index_select(0, list_of_row)
    return y.gather(1, chosen.clamp(min=0)).masked_fill(chosen < 0, -math.inf)


def selected_linear(
    x: Float32[Tensor, "rows inputs"],
    layer: Linear,
    lists: Int[Tensor, "lists chosen"],
    list_of_row: Int[Tensor, " rows"],
) -> Float32[Tensor, "rows chosen"]:
    """Return ``select_outputs`` of x W^T + b, not differentiable. The other outputs are not computed.

    Cost: O(rows * inputs * chosen). The weights of a list are read once for consecutive rows that take it.

    Args:
        x: on a CPU.
        layer: weight and bias; their rows are read where they are.
        lists: of outputs, each followed by negative numbers, if it is shorter than the longest.
        list_of_row: from 0 to lists - 1.

    Raises:
        IndexError: an output or a list is out of range.
        ValueError: x has another width than the weight.
    """
    weight, bias = layer
    if not has_kernel("selected_linear_float32"):
        return select_outputs(torch.nn.functional.linear(x, weight, bias), lists, list_of_row)
    if x.shape[1:] != weight.shape[1:]:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected (rows, {weight.shape[1]})")
    x, weight = x.contiguous(), contiguous_rows(weight)
    lists, list_of_row = (indices.to(torch.int64).contiguous() for indices in (lists, list_of_row))
    bias = None if bias is None else bias.contiguous()
    y = x.new_empty(len(x), lists.shape[1])
    kernel_module().selected_linear_float32(
        x.data_ptr(),
        weight.data_ptr(),
        weight.stride(0),
        0 if bias is None else bias.data_ptr(),
        lists.data_ptr(),
        list_of_row.data_ptr(),
        y.data_ptr(),
        (*x.shape[:1], *weight.shape, *lists.shape),
        torch.get_num_threads(),
    )
    return y
