"""Linear layers whose products can be computed in int8 or bfloat16, for decoding on a CPU.

``linear`` is ``torch.nn.functional.linear`` outside ``linear_precision``, by our own kernel where that is faster.
Inside, in int8 or bfloat16, weights are quantized or rounded once and kept until its end, and inputs row by row.
``LinearPrecision`` is the type of its argument.
"""

from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch.utils.weak import WeakTensorKeyDictionary

from structattn.operators.linear.int8 import PRECISIONS, LinearPrecision, int8_linear, int8_refusal, quantize_weight
from structattn.operators.linear.packed import can_pack, pack_linears, packed_feedforward, packed_linear
from structattn.operators.linear.product import agree, are_plain, linear_product

__all__ = [
    "LinearPrecision",
    "apply_feedforward",
    "apply_linear",
    "current_precision",
    "keep_until_changed",
    "linear",
    "linear_precision",
    "linear_product",
    "precision_refusal",
]

Form = TypeVar("Form")

_precision: ContextVar[LinearPrecision] = ContextVar("linear_precision", default="float32")
# Weights in other forms, kept for their owner by name, with the version of the weights that they were made of. They are
# not kept after ``linear_precision``: torch's fused optimizers change weights without a new version of them.
_Forms = MutableMapping[Tensor, dict[Hashable, tuple[Hashable, Any]]]
_kept: ContextVar[_Forms | None] = ContextVar("kept_weights", default=None)
_LEAST_ROWS = 64  # of a float32 product whose weight is laid out


@contextmanager
def linear_precision(precision: LinearPrecision) -> Iterator[None]:
    """Compute the products of linear layers in this precision, in this thread.

    "float32" is that of the weights. The others hold for float32 layers on a CPU, without gradients. In "int8" rows of
    weights and inputs are quantized; see ``int8_linear``. In "bf16" both are rounded to bfloat16 (8 bits of mantissa),
    and their products are added in float32. Weights are laid out for our own kernels, where these were built, and kept
    in addition to the model's own: as much memory again, a quarter of it in int8, half of it in bfloat16.

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
    return _kept_product(x, weight, bias) if _can_keep(x, weight, bias) else linear_product(x, weight, bias)


def apply_linear(module: nn.Linear, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
    """Return ``module(x)`` in the precision that ``linear_precision`` sets.

    A module with hooks, or of another class than ``nn.Linear``, is called, and has the precision of its weights.
    """
    if _is_plain_linear(module):
        return linear(x, module.weight, module.bias)
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
    others = hidden.bias, output.weight, output.bias
    version = tuple(map(_identity, (hidden.weight, *others)))

    def pack() -> tuple[Any, Any]:
        # The others stay, so that no new tensor has their address.
        return pack_linears(layers, current_precision()), others

    packed, _ = keep_until_changed(hidden.weight, "feedforward", version, pack)
    return packed_feedforward(x.reshape(-1, x.shape[-1]), *packed).view(x.shape)


def _can_keep_packed(hidden: nn.Linear, output: nn.Linear, x: Tensor) -> bool:
    if not (_is_plain_linear(hidden) and _is_plain_linear(output)) or _kept.get() is None:
        return False
    both = _can_keep(x, hidden.weight, hidden.bias) and _fits_kernels(output.weight, output.weight, output.bias)
    return both and can_pack(_precision.get()) and output.weight.shape == hidden.weight.shape[::-1]


def _is_plain_linear(module: nn.Module) -> bool:
    """Return whether a call of the module does nothing but the product; a compiler has to see the call."""
    if torch.compiler.is_compiling():
        return False
    if type(module) is not nn.Linear or "forward" in vars(module) or torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]  # torch's
        return False
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return not hooks


def _can_keep(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether a product is one of those that ``linear_precision`` is for, with weights that it keeps."""
    if torch.compiler.is_compiling() or _kept.get() is None or not _fits_kernels(x, weight, bias):
        return False
    return _precision.get() != "float32" or _is_better_kept(x, weight, bias)


def _is_better_kept(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether a float32 product repays the layout: not with few rows, or a weight that is soon another one."""
    lasting = isinstance(_owner(weight), nn.Parameter) and not weight.is_inference()
    lasting = lasting and (bias is None or not bias.is_inference())
    return lasting and x.numel() >= _LEAST_ROWS * x.shape[-1] and can_pack("float32")


def _fits_kernels(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if torch.is_grad_enabled() or not are_plain(x, weight, bias):
        return False
    return agree(x, weight, bias) and weight.numel() > 0


def _owner(weight: Tensor) -> Tensor:
    return weight if weight._base is None else weight._base


def _kept_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b by our own kernel where the processor has its instructions, else, in int8, by oneDNN.

    The weight is kept so until it changes or ``linear_precision`` ends, that of a view with the whole tensor.
    """
    owner, precision = _owner(weight), _precision.get()
    key = "whole" if owner is weight else (weight.data_ptr(), tuple(weight.shape), weight.stride())
    if not can_pack(precision):
        version = _identity(weight)
        return int8_linear(x, keep_until_changed(owner, key, version, lambda: quantize_weight(weight)), bias)

    def pack() -> tuple[Any, Any]:
        # The bias stays, so that no new tensor has its address.
        return pack_linears([(weight, bias)], precision)[0], bias

    packed, _ = keep_until_changed(owner, key, (_identity(weight), _identity(bias)), pack)
    y: Tensor = packed_linear(x.reshape(-1, x.shape[-1]), packed).view(*x.shape[:-1], len(weight))
    return y


def _identity(tensor: Tensor | None) -> Hashable:
    """Return what differs for another tensor, as long as this one exists, and after a change."""
    return None if tensor is None else (tensor.data_ptr(), tensor.shape, tensor.stride(), _version(tensor))


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
