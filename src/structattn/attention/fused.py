"""Conditions under which modules may be replaced by one kernel that computes what they compute."""

from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from structattn.attention.projections import InputProjection, OutputProjection
from structattn.operators.residual_sublayers import SublayerWeights, can_fuse

_LINEAR = {nn.Linear, InputProjection, OutputProjection}  # not their subclasses, such as parametrized modules


def fusible_weights(x: object, norm: Any, first: nn.Linear, second: nn.Linear) -> SublayerWeights | None:
    """Return the parameters of a sublayer with input ``x``; None where the modules have to be called.

    They have to if a module has hooks, which must see its input or output, or if the kernel is not for ``x``.

    Args:
        x: the input of the sublayer.
        norm: its layer norm; None: it has none.
        first: its first linear map.
        second: its last one.
    """
    plain = type(norm) is nn.LayerNorm and {type(first), type(second)} <= _LINEAR
    if not plain or norm.weight is None or is_hooked(norm, first, second):
        return None
    weights = SublayerWeights(norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias)
    return weights if can_fuse(x, weights) else None


def is_hooked(*modules: Any) -> bool:
    """Return whether one of the modules has hooks, or all modules have."""
    if torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]  # torch's
        return True
    return any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        for module in modules
    )
