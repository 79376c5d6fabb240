"""Conditions under which modules may be replaced by one kernel that computes what they compute."""

from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from structattn.attention.projections import InputProjection, OutputProjection, Projection
from structattn.operators.residual_sublayers import StackWeights, SublayerWeights, can_fuse, fit

# Not their subclasses, such as parametrized modules.
LINEAR = (nn.Linear, InputProjection, OutputProjection, Projection)


def modules_replaceable(x: object) -> bool:
    """Whether the kernel can run on ``x``, and no hooks are registered for all modules."""
    return can_fuse(x) and not torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]  # torch's


def fusible_weights(x: Tensor, norm: Any, first: nn.Linear, second: nn.Linear) -> SublayerWeights | None:
    """Return the parameters of a sublayer with input ``x``; None where the modules have to be called.

    They have to if a module has hooks, which must see its input or output, or if the kernel is not for their sizes.

    Args:
        x: the input of the sublayer, for which ``modules_replaceable`` is true.
        norm: its layer norm; None: it has none.
        first: its first linear map.
        second: its last one.
    """
    plain = type(norm) is nn.LayerNorm and type(first) in LINEAR and type(second) in LINEAR
    if not plain or not norm.elementwise_affine or is_hooked(norm, first, second):
        return None
    # Of modules of these classes. Attributes take as long as the products of a short sentence.
    found = [module._parameters[name] for module in (norm, first, second) for name in ("weight", "bias")]
    weights = SublayerWeights(*found)  # type: ignore[arg-type]  # the weights are not None
    return weights if fit(x, weights) else None


def fusible_stack_weights(
    x: Tensor, norm: Any, first: nn.Linear, second: nn.Linear, bottom: Tensor
) -> StackWeights | None:
    """Return the same for a nondeterministic stack, whose maps have no biases; ``bottom`` is its bottom vector."""
    found = fusible_weights(x, norm, first, second)
    if found is None or bottom.dtype != x.dtype:
        return None
    return StackWeights(found.scale, found.shift, found.first, found.second, bottom)


def is_hooked(*modules: Any) -> bool:
    """Return whether one of the modules has hooks of its own."""
    for module in modules:
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return True
    return False
