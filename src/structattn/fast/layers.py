"""Layers whose sublayers kernels compute, as a shallow copy of the modules."""

import copy
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from structattn.attention import NondeterministicStackAttention, SoftmaxAttention
from structattn.attention.heads import SoftmaxSelection
from structattn.attention.projections import InputProjection, OutputProjection
from structattn.fast.residual_sublayers import (
    AttentionSublayer,
    FeedForwardSublayer,
    ResidualSublayer,
    StackSublayer,
    StackWeights,
    SublayerWeights,
    residual_sublayers,
)
from structattn.models.block import Block, FeedForward, HiddenStates, Memory, Residual
from structattn.models.layers import Layers
from structattn.operators.common.differentiation import is_eager
from structattn.operators.common.kernels import has_kernel

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def shallow_copy(module: nn.Module, kind: type[ModuleT], children: dict[str, Any]) -> ModuleT:
    """Return a module of class ``kind`` with the attributes of another one, whose mode and hooks it follows.

    ``__init__`` of the class is not called; ``children`` become its submodules.
    """
    cls = _following(cast(Any, kind))
    copied: ModuleT = object.__new__(cls)
    copied.__dict__.update(vars(module), _modules=children, _original=module)
    return copied


@cache
def _following(kind: Any) -> Any:
    """Return a subclass of the same name with mode and kind of hooks of ``_original``, which alone is pickled."""

    def shared(name: str) -> property:
        return property(
            lambda self: getattr(vars(self)["_original"], name),
            lambda self, value: setattr(vars(self)["_original"], name, value),
        )

    def reduced(self: nn.Module) -> tuple[Any, ...]:
        return _accelerated, (vars(self)["_original"],)

    def copied(self: nn.Module, memo: dict[int, Any]) -> nn.Module:
        other = memo[id(self)] = object.__new__(type(self))
        other.__dict__.update(copy.deepcopy(vars(self), memo))
        return other

    methods = {"__reduce__": reduced, "__deepcopy__": copied, "__module__": kind.__module__}
    attributes = {name: shared(name) for name in ("training", "_is_full_backward_hook")}
    return type(kind.__name__, (kind,), methods | attributes)


def _accelerated(model: nn.Module) -> nn.Module:
    """Return the fast form of a model that was pickled, after a comparison: other code may have been loaded with it."""
    accelerated: nn.Module = import_module("structattn.acceleration").accelerate(model)  # by name: it stands above
    return accelerated


DTYPES = torch.float32, torch.float64
MOST_D_MODEL, MOST_D_FF, MOST_TIME = 64, 256, 512  # beyond, separate operators are as fast


class _Kind(NamedTuple):
    """A class of layers that a kernel computes.

    Args:
        first: the name and the class of its first linear map.
        second: the same of the second.
        sublayer: returns the sublayer for the kernel, given the weights of the norm and of both maps.
    """

    first: tuple[str, type[nn.Linear]]
    second: tuple[str, type[nn.Linear]]
    sublayer: Callable[[Residual, SublayerWeights], ResidualSublayer]


def _attention(residual: Residual, weights: SublayerWeights) -> ResidualSublayer:
    layer = residual.layer
    rates = _active(layer), _active(residual)
    return AttentionSublayer(weights, layer.num_heads, layer.causal, *rates, cast(Any, residual.norm).eps)


def _feedforward(residual: Residual, weights: SublayerWeights) -> ResidualSublayer:
    return FeedForwardSublayer(weights, _active(residual.layer), _active(residual), cast(Any, residual.norm).eps)


def _stack(residual: Residual, weights: SublayerWeights) -> ResidualSublayer:
    layer = residual.layer
    own = StackWeights(weights.scale, weights.shift, weights.first, weights.second, layer._parameters["bottom"])
    sizes = layer.num_states, layer.stack_alphabet_size, layer.window
    options = layer.pushed_activation, layer.transition_offsets(), _active(residual), cast(Any, residual.norm).eps
    return StackSublayer(own, *sizes, *options)


def _active(module: Any) -> float:
    """Return the rate of dropout in the mode of the module."""
    return module.dropout if module.training else 0.0


_KINDS: dict[type, _Kind] = {
    SoftmaxAttention: _Kind(("projection", InputProjection), ("output", OutputProjection), _attention),
    FeedForward: _Kind(("hidden", nn.Linear), ("output", nn.Linear), _feedforward),
    NondeterministicStackAttention: _Kind(("projection", InputProjection), ("output", nn.Linear), _stack),
}


class Kernel:
    """The kernel of a residual sublayer of one of the kinds above, whose weights are read at each call.

    Args:
        residual: for which ``is_replaceable`` is true.
    """

    def __init__(self, residual: Residual) -> None:
        kind = _KINDS[type(residual.layer)]
        self.residual, self.sublayer = residual, kind.sublayer
        modules = residual.norm, *(residual.layer._modules[name] for name, _ in (kind.first, kind.second))
        self.places = [(cast(nn.Module, part)._parameters, name) for part in modules for name in ("weight", "bias")]
        self.shapes = _shapes(self._now())

    def of(self, x: Tensor) -> ResidualSublayer | None:
        """Return the sublayer for an input; None if its weights have changed their shapes, or do not fit the input."""
        sublayer = self._now()
        weights = [weight for weight in sublayer.weights if weight is not None]
        plain = all(type(weight) in (Tensor, nn.Parameter) for weight in weights)  # others may compute on their own
        fit = plain and all(weight.dtype == x.dtype and weight.is_cpu for weight in weights)
        return sublayer if fit and x.shape[2:] == self.shapes[0] and _shapes(sublayer) == self.shapes else None

    def _now(self) -> ResidualSublayer:
        return self.sublayer(self.residual, SublayerWeights(*self.weights()))

    def weights(self) -> list[Any]:
        """Return the parameters of the norm and of both maps, in the order of ``SublayerWeights``."""
        return [parameters.get(name) for parameters, name in self.places]  # a parametrization removes its own


def _shapes(sublayer: ResidualSublayer) -> list[torch.Size | None]:
    return [None if weight is None else weight.shape for weight in sublayer.weights]


def is_replaceable(residual: object) -> bool:
    """Return whether a module consists of exactly those modules that a kernel computes, small ones on a CPU."""
    if type(residual) is not Residual or type(residual.layer) not in _KINDS or residual.norm_placement != "pre":
        return False
    layer: Any = residual.layer
    if type(layer) is SoftmaxAttention and not (layer.positions is None and type(layer.selection) is SoftmaxSelection):
        return False
    names = dict(_KINDS[type(layer)][:2])
    parts = {f"layer.{name}": kind for name, kind in names.items()}
    expected = {"": Residual, "norm": nn.LayerNorm, "layer": type(layer), **parts}
    if {name: type(module) for name, module in residual.named_modules()} != expected:
        return False
    maps = [layer._modules[name] for name in names]
    if any(module._parameters.get("weight") is None for module in (residual.norm, *maps)):
        return False
    if not all(parameter.is_cpu and parameter.dtype in DTYPES for parameter in residual.parameters()):
        return False
    size, units = maps[1].weight.shape
    return bool(size <= MOST_D_MODEL and units <= MOST_D_FF)


def replaceable_sublayers(module: nn.Module) -> list[Residual]:
    """Return the sublayers of a module that kernels compute; none if it is not of the class ``Layers``."""
    if type(module) is not Layers or not has_kernel("ResidualSequence"):
        return []
    sublayers = [child for block in module.blocks if type(block) is Block for child in block.children()]
    return [sublayer for sublayer in sublayers if is_replaceable(sublayer)]


def can_run(x: object) -> bool:
    """Whether the kernels can run.

    They are for float32 and float64 tensors (B, T, d) on a CPU in eager mode: not under a compiler, autocast,
    transforms of ``torch.func``, forward-mode differentiation or modes that see each operation, nor with hooks that are
    registered for all modules.
    """
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.dim() != 3 or x.device.type != "cpu":
        return False
    if x.dtype not in DTYPES or x.shape[1] > MOST_TIME:
        return False
    if torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]  # torch's
        return False
    return is_eager() and not torch.is_autocast_enabled("cpu")


class FastLayers(Layers):
    """``Layers`` that share the modules of others, and compute runs of their sublayers by kernels."""

    kernels: dict[nn.Module, Kernel]
    hooks: list[Any]

    @classmethod
    def of(cls, layers: Layers) -> "FastLayers":
        """Return those of ``layers``, whose weights, mode and hooks hold at each call."""
        made = shallow_copy(layers, cls, layers._modules)
        made.kernels = {residual: Kernel(residual) for residual in replaceable_sublayers(layers)}
        kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
        made.hooks = [getattr(module, kind) for module in layers.blocks.modules() for kind in kinds]
        return made

    def body(
        self,
        x: HiddenStates,
        lengths: Tensor | None = None,
        memory: Memory | None = None,
        memory_lengths: Tensor | None = None,
    ) -> HiddenStates:
        """Return the last block's output: by kernels, where they can run and skip no hooks."""
        if can_run(x) and not any(self.hooks):
            return self.body_by_kernels(cast(Tensor, x), lengths, memory, memory_lengths)
        return super().body(x, lengths, memory, memory_lengths)

    def body_by_kernels(
        self, x: Tensor, lengths: Tensor | None, memory: Memory | None, memory_lengths: Tensor | None
    ) -> Tensor:
        """Return the last block's output; ``can_run(x)`` holds."""
        run: list[ResidualSublayer] = []
        for module, arguments in self._calls(lengths, memory, memory_lengths):
            kernel = self.kernels.get(module)
            sublayer = None if kernel is None else kernel.of(x)
            if sublayer is None:
                x = module(residual_sublayers(x, run, lengths), *arguments)
                run.clear()
            else:
                run.append(sublayer)
        return residual_sublayers(x, run, lengths)

    def _calls(self, *arguments: Any) -> Iterable[tuple[nn.Module, tuple[Any, ...]]]:
        """Return the sublayers of blocks, or blocks of other classes, with their arguments after x."""
        for block in self.blocks:
            if type(block) is Block:
                yield from ((sublayer, own) for _, sublayer, own in block.sublayers(*arguments))
            else:
                yield block, arguments
