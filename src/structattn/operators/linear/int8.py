"""Linear layers in int8: y = scale_x scale_w (q_x q_w^T) + b, with one scale for each row of x and each output."""

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Float32, Int, Int8
from torch import Tensor

from structattn.operators.common.kernels import contiguous_rows, has_kernel, kernel_for
from structattn.support.devices import processor_flags

LinearPrecision = Literal["float32", "int8", "bf16"]
PRECISIONS: tuple[LinearPrecision, ...] = get_args(LinearPrecision)

GREATEST = 127  # of a quantized number; -128 is not used, so that the range is symmetric
INSTRUCTIONS = {"avx512_vnni", "avx_vnni", "amx_int8"}


class Int8Weight(NamedTuple):
    """A weight in the memory layout of oneDNN, with the scale of each output and zeros as zero points."""

    packed: Tensor
    scales: Float32[Tensor, " outputs"]
    zero_points: Int[Tensor, " outputs"]


def int8_refusal() -> str | None:
    """Return why int8 products are not available here; None if they are."""
    if not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return "int8 needs a build of torch with oneDNN"
    if not INSTRUCTIONS & processor_flags():
        return f"int8 needs a processor with one of {', '.join(sorted(INSTRUCTIONS))}"
    return None


def quantize_rows_reference(
    x: Float32[Tensor, "rows size"],
) -> tuple[Int8[Tensor, "rows size"], Float32[Tensor, " rows"]]:
    """The definition of ``quantize_rows``: scale = max |x| / 127, q = round(x / scale), ties to even."""
    scales = x.abs().amax(1) / GREATEST
    inverse = 1 / scales
    inverse = torch.where(inverse.isfinite(), inverse, 0)
    return (x * inverse[:, None]).nan_to_num(0).round().to(torch.int8), scales


def quantize_rows(
    x: Float32[Tensor, "rows size"],
) -> tuple[Int8[Tensor, "rows size"], Float32[Tensor, " rows"]]:
    """Return x as integers from -127 to 127 and the scale of each row. A row that holds NaN gets the scale NaN."""
    if not has_kernel("quantize_rows_float32") or x.shape[1] == 0:
        return quantize_rows_reference(x)
    x, quantized, scales = contiguous_rows(x), torch.empty(x.shape, dtype=torch.int8), x.new_empty(len(x))
    kernel_for("quantize_rows", x.dtype)(
        x.data_ptr(), x.stride(0), quantized.data_ptr(), scales.data_ptr(), *x.shape, torch.get_num_threads()
    )
    return quantized, scales


def quantize_weight(weight: Float32[Tensor, "outputs inputs"]) -> Int8Weight:
    """Quantize a weight and lay it out for products with rows.

    Raises:
        ValueError: the weight is not finite.
    """
    quantized, scales = quantize_rows(weight.detach())
    if not bool(scales.isfinite().all()):
        raise not_finite()
    packed = torch.ops.onednn.qlinear_prepack(quantized, None)
    return Int8Weight(packed, scales, torch.zeros(len(weight), dtype=torch.int32))


def not_finite() -> ValueError:
    """Return the error for a weight that has no scale."""
    return ValueError("a weight is not finite; expected numbers, which int8 needs")


def int8_linear(
    x: Float[Tensor, "*batch inputs"], weight: Int8Weight, bias: Tensor | None
) -> Float[Tensor, "*batch outputs"]:
    """Return x W^T + b, not differentiable; the sums of the products are exact.

    Relative error of the result: about 1 / 127 of the norms of x and of each row of W, from rounding both.
    """
    quantized, scales = quantize_rows(x.reshape(-1, x.shape[-1]))
    y: Tensor = torch.ops.onednn.qlinear_pointwise(
        quantized, 1.0, 0, *weight, None, 1.0, 0, torch.float32, "none", [], ""
    )
    if has_kernel("scale_rows_float32") and y.is_contiguous():
        bias = None if bias is None else bias.detach().contiguous()
        address = 0 if bias is None else bias.data_ptr()
        kernel_for("scale_rows", y.dtype)(y.data_ptr(), scales.data_ptr(), address, *y.shape, torch.get_num_threads())
    else:
        y.mul_(scales[:, None])
        if bias is not None:
            y.add_(bias)
    return y.view(*x.shape[:-1], y.shape[1])
