"""Linear layers whose products can be computed in int8, for decoding on a CPU.

``linear`` is ``torch.nn.functional.linear`` outside ``linear_precision("int8")``. Inside, weights are quantized
once and kept until its end, and inputs are quantized row by row. ``LinearPrecision`` is the type of its argument.
"""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from structattn.operators.linear.int8 import Int8Weight, LinearPrecision, int8_linear, int8_refusal, quantize_weight

__all__ = ["LinearPrecision", "apply_linear", "current_precision", "linear", "linear_precision"]

_precision: ContextVar[LinearPrecision] = ContextVar("linear_precision", default="float32")
_Quantized = dict[tuple[int, tuple[int, ...]], tuple[int, Int8Weight]]  # by address and shape; with the version
# Not kept after ``linear_precision``: a fused optimizer changes weights without a new version of them.
_quantized: ContextVar[MutableMapping[Tensor, _Quantized]] = ContextVar("quantized_weights")


@contextmanager
def linear_precision(precision: LinearPrecision) -> Iterator[None]:
    """Compute the products of linear layers in this precision, in this thread.

    "float32" is that of the weights. "int8" holds for float32 layers on a CPU, without gradients; see ``int8_linear``.
    The quantized weights take a quarter of the memory of the weights, in addition to them.

    Raises:
        ValueError: the precision is unknown.
        RuntimeError: the processor has no instructions for int8 products, or torch was built without oneDNN.
    """
    if precision not in get_args(LinearPrecision):
        raise ValueError(f"precision={precision!r}; expected one of {', '.join(get_args(LinearPrecision))}")
    refusal = int8_refusal() if precision == "int8" else None
    if refusal is not None:
        raise RuntimeError(refusal)
    precision_token, quantized_token = _precision.set(precision), _quantized.set(WeakTensorKeyDictionary())
    try:
        yield
    finally:
        _quantized.reset(quantized_token)
        _precision.reset(precision_token)


def current_precision() -> LinearPrecision:
    """Return the precision that ``linear_precision`` sets in this thread."""
    return _precision.get()


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "*batch outputs"]:
    """Return x W^T + b in the precision that ``linear_precision`` sets."""
    if torch.compiler.is_compiling() or _precision.get() == "float32" or not _fits_int8(x, weight):
        return F.linear(x, weight, bias)
    return int8_linear(x, _quantized_weight(weight), bias)


def apply_linear(module: nn.Linear, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
    """Return ``module(x)`` in the precision that ``linear_precision`` sets; hooks are skipped in int8."""
    if torch.compiler.is_compiling() or _precision.get() == "float32" or not _fits_int8(x, module.weight):
        y: Tensor = module(x)
        return y
    return int8_linear(x, _quantized_weight(module.weight), module.bias)


def _fits_int8(x: Tensor, weight: Tensor) -> bool:
    return not torch.is_grad_enabled() and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32


def _quantized_weight(weight: Tensor) -> Int8Weight:
    """Return the quantized weight, kept until it changes or ``linear_precision`` ends.

    That of a slice is kept with the whole tensor.
    """
    owner = weight if weight._base is None else weight._base
    kept = _quantized.get().setdefault(owner, {})
    key, version = (weight.data_ptr(), tuple(weight.shape)), 0 if weight.is_inference() else weight._version
    found = kept.get(key)
    if found is None or found[0] != version:
        found = kept[key] = (version, quantize_weight(weight))
    return found[1]
