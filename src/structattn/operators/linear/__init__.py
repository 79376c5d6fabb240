"""Linear layers whose products can be computed in int8 or bfloat16, for decoding on a CPU.

``linear`` is ``torch.nn.functional.linear`` outside ``linear_precision``. Inside, in int8 or bfloat16, weights are
quantized or rounded once and kept until its end, and inputs row by row. ``LinearPrecision`` is the type of its
argument.
"""

from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from structattn.operators.linear.int8 import PRECISIONS, LinearPrecision, int8_linear, int8_refusal, quantize_weight
from structattn.operators.linear.packed import can_pack, pack_linears, packed_feedforward, packed_linear

__all__ = [
    "LinearPrecision",
    "apply_feedforward",
    "apply_linear",
    "current_precision",
    "keep_until_changed",
    "linear",
    "linear_precision",
    "precision_refusal",
]

Form = TypeVar("Form")

_precision: ContextVar[LinearPrecision] = ContextVar("linear_precision", default="float32")
# Weights in other forms, kept for their owner by name, with the version of the weights that they were made of. They are
# not kept after ``linear_precision``: torch's fused optimizers change weights without a new version of them.
_Forms = MutableMapping[Tensor, dict[Hashable, tuple[Hashable, Any]]]
_kept: ContextVar[_Forms | None] = ContextVar("kept_weights", default=None)


@contextmanager
def linear_precision(precision: LinearPrecision) -> Iterator[None]:
    """Compute the products of linear layers in this precision, in this thread.

    "float32" is that of the weights. The others hold for float32 layers on a CPU, without gradients. In "int8" rows of
    weights and inputs are quantized; see ``int8_linear``. In "bf16" both are rounded to bfloat16 (8 bits of mantissa),
    and their products are added in float32. Weights are laid out for our own kernel, where it was built, and kept in
    addition to the model's own; they take a quarter or half of their memory in int8 or bfloat16.

    Raises:
        ValueError: the precision is unknown.
        RuntimeError: the processor has no instructions for such products; see ``precision_refusal``.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}; expected one of {', '.join(PRECISIONS)}")
    refusal = precision_refusal(precision)
    if refusal is not None:
        raise RuntimeError(refusal)
    precision_token, kept_token = _precision.set(precision), _kept.set(WeakTensorKeyDictionary())
    try:
        yield
    finally:
        _kept.reset(kept_token)
        _precision.reset(precision_token)


def precision_refusal(precision: LinearPrecision) -> str | None:
    """Return why products in this precision are not available here; None if they are."""
    if precision == "int8":
        return int8_refusal()
    if precision == "float32" or can_pack(precision):
        return None
    return "bf16 needs a processor with AVX512-BF16 (avx512_bf16), and the compiled kernels"


def current_precision() -> LinearPrecision:
    """Return the precision that ``linear_precision`` sets in this thread."""
    return _precision.get()


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "*batch outputs"]:
    """Return x W^T + b in the precision that ``linear_precision`` sets."""
    return _kept_product(x, weight, bias) if _can_keep(x, weight, bias) else F.linear(x, weight, bias)


def apply_linear(module: nn.Linear, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
    """Return ``module(x)`` in the precision that ``linear_precision`` sets; hooks are skipped in int8 and bfloat16."""
    if _can_keep(x, module.weight, module.bias) and (_precision.get() != "float32" or not _is_hooked(module)):
        return _kept_product(x, module.weight, module.bias)
    y: Tensor = module(x)
    return y


def apply_feedforward(
    hidden: nn.Linear, output: nn.Linear, x: Float[Tensor, "*batch d_model"]
) -> Float[Tensor, "*batch d_model"]:
    """Return ``output(relu(hidden(x)))`` in the precision that ``linear_precision`` sets.

    Inside of it one kernel without a tensor of all hidden units computes both layers, with weights laid out once.
    """
    if not _can_keep_packed(hidden, output, x):
        return apply_linear(output, F.relu(apply_linear(hidden, x)))
    layers = [(hidden.weight, hidden.bias), (output.weight, output.bias)]
    version = tuple((tensor.data_ptr(), _version(tensor)) for layer in layers for tensor in layer if tensor is not None)
    packed = keep_until_changed(
        hidden.weight, "feedforward", version, lambda: pack_linears(layers, current_precision())
    )
    return packed_feedforward(x.reshape(-1, x.shape[-1]), *packed).view(x.shape)


def _can_keep_packed(hidden: nn.Linear, output: nn.Linear, x: Tensor) -> bool:
    both = _can_keep(x, hidden.weight, hidden.bias) and _can_keep(output.weight, output.weight, output.bias)
    if not both or output.weight.shape != hidden.weight.shape[::-1] or torch.is_autocast_enabled("cpu"):
        return False
    return can_pack(_precision.get()) and not _is_hooked(hidden) and not _is_hooked(output)


def _is_hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _can_keep(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether a product is one of those that ``linear_precision`` is for, with weights that it keeps."""
    if torch.compiler.is_compiling() or _kept.get() is None or not _fits_kernels(x, weight, bias):
        return False
    return _precision.get() != "float32" or _is_better_kept(weight)


def _is_better_kept(weight: Tensor) -> bool:
    """Return whether our own kernel should compute a float32 product; a weight that changes is not worth laying out."""
    return can_pack("float32") and not weight.is_inference() and not torch.is_autocast_enabled("cpu")


def _fits_kernels(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    tensors = (x, weight) if bias is None else (x, weight, bias)
    if torch.is_grad_enabled() or not all(each.is_cpu and each.dtype == torch.float32 for each in tensors):
        return False
    shapes = x.shape[-1:] == weight.shape[1:] and (bias is None or bias.shape == weight.shape[:1])
    return shapes and weight.dim() == 2 and weight.numel() > 0


def _kept_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b by our own kernel where the processor has its instructions, else, in int8, by oneDNN.

    The weight is kept so until it changes or ``linear_precision`` ends, that of a view with the whole tensor.
    """
    owner = weight if weight._base is None else weight._base
    key = weight.data_ptr(), tuple(weight.shape), weight.stride()
    version = _version(weight), None if bias is None else (bias.data_ptr(), _version(bias))
    precision = _precision.get()
    if not can_pack(precision):
        return int8_linear(x, keep_until_changed(owner, key, version, lambda: quantize_weight(weight)), bias)
    packed = keep_until_changed(owner, key, version, lambda: pack_linears([(weight, bias)], precision)[0])
    y: Tensor = packed_linear(x.reshape(-1, x.shape[-1]), packed).view(*x.shape[:-1], len(weight))
    return y


def _version(tensor: Tensor) -> Hashable:
    """Return what differs after a change; that of an inference tensor always differs, because torch counts none."""
    return object() if tensor.is_inference() else tensor._version


def keep_until_changed(owner: Tensor, name: Hashable, version: Hashable, make: Callable[[], Form]) -> Form:
    """Return what ``make`` returned for this name and version before, or else what it returns now.

    It is kept until another version is asked for, or ``linear_precision`` ends; outside of that it is not kept. Changes
    by way of ``.data`` have no version.

    Args:
        owner: a weight, with which it is dropped unless it refers to it.
        name: what it is.
        version: of everything that it is made of.
        make: called without arguments.
    """
    forms = _kept.get()
    kept: dict[Hashable, tuple[Hashable, Form]] = {} if forms is None else forms.setdefault(owner, {})
    found = kept.get(name)
    if found is None or found[0] != version:
        found = kept[name] = (version, make())
    return found[1]
