"""Linear layers with weights that are laid out once for the compiled product, in float32, int8 or bfloat16."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Float32
from torch import Tensor

from structattn.operators.common.kernels import has_kernel, kernel_module
from structattn.operators.linear.int8 import PRECISIONS, LinearPrecision, not_finite
from structattn.support.devices import processor_flags

Linear = tuple[Float32[Tensor, "outputs inputs"], Float32[Tensor, " outputs"] | None]  # weight and bias

_FLAGS = {"int8": "avx512_vnni", "bf16": "avx512_bf16"}


@dataclass(frozen=True, eq=False)
class PackedLinear:
    """A linear layer in the memory layout of the kernel.

    Args:
        data: weights and biases, and the scales of the weights in int8. Biases and sums are in float32.
        inputs: their number.
        outputs: their number.
        precision: of the products; in int8 rows of inputs and weights are quantized as in ``int8_linear``.
    """

    data: Tensor
    inputs: int
    outputs: int
    precision: LinearPrecision


def can_pack(precision: LinearPrecision) -> bool:
    """Return whether the kernels for this processor have products with packed weights in this precision."""
    if not has_kernel("packed_feedforward_float32"):
        return False
    return precision == "float32" or (kernel_module().has_reduced_precision and _FLAGS[precision] in processor_flags())


def pack_linears(linears: Sequence[Linear], precision: LinearPrecision = "float32") -> tuple[PackedLinear, ...]:
    """Copy weights and biases, float32 on a CPU, into the layout of the kernel. See ``can_pack``.

    They follow each other in memory, in huge pages where the system has them: products fetch the weights of the next
    layer in advance, if it is used next.

    Raises:
        ValueError: a weight is not finite, and the precision is int8.
    """
    number, module = PRECISIONS.index(precision), kernel_module()
    shapes = [weight.shape for weight, _ in linears]
    ends = [0, *accumulate(module.packed_size_float32(*shape, number) for shape in shapes)]
    memory = torch.empty(ends[-1], dtype=torch.uint8)
    module.advise_huge_pages(memory.data_ptr(), len(memory))
    packed = []
    for linear, start, end in zip(linears, ends[:-1], ends[1:], strict=True):
        weight, bias = (None if tensor is None else tensor.detach().contiguous() for tensor in linear)
        assert weight is not None
        (outputs, inputs), data = weight.shape, memory[start:end]
        address = 0 if bias is None else bias.data_ptr()
        if not module.pack_float32(weight.data_ptr(), address, data.data_ptr(), outputs, inputs, number):
            raise not_finite()
        packed.append(PackedLinear(data, inputs, outputs, precision))
    return tuple(packed)


def packed_linear(x: Float32[Tensor, "rows inputs"], packed: PackedLinear) -> Float32[Tensor, "rows outputs"]:
    """Return x W^T + b, not differentiable. Cost: O(rows * inputs * outputs)."""
    x, y = x.contiguous(), x.new_empty(len(x), packed.outputs)
    kernel_module().packed_linear_float32(
        x.data_ptr(),
        packed.data.data_ptr(),
        y.data_ptr(),
        len(x),
        packed.outputs,
        packed.inputs,
        PRECISIONS.index(packed.precision),
        torch.get_num_threads(),
    )
    return y


def packed_feedforward(
    x: Float32[Tensor, "rows d_model"], hidden: PackedLinear, output: PackedLinear
) -> Float32[Tensor, "rows d_model"]:
    """Return W_2 relu(W_1 x + b_1) + b_2, not differentiable, without a tensor of all hidden units.

    Cost: O(rows * d_model * d_ff).
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel_module().packed_feedforward_float32(
        x.data_ptr(),
        hidden.data.data_ptr(),
        output.data.data_ptr(),
        y.data_ptr(),
        *x.shape,
        hidden.outputs,
        PRECISIONS.index(hidden.precision),
        torch.get_num_threads(),
    )
    return y
