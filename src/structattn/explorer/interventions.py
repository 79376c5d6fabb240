"""Interventions: compute with a head or a sublayer switched off, or with an action of a stack forced."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from structattn.attention import NondeterministicStackAttention, StackPointerAttention, Streams
from structattn.attention.projections import NoOutputProjection, OutputProjection
from structattn.loading.records import action_names
from structattn.models import EncoderDecoder, LoopedLayers, PaddedLayers
from structattn.models.block import HiddenStates, Residual
from structattn.models.layers import Layers
from structattn.support.errors import UsageError
from structattn.support.threads import in_this_thread
from structattn.tasks.loaded import Side


@dataclass(frozen=True)
class HeadOff:
    """A head whose output is replaced by zeros at all positions.

    Args:
        layer: index of the layer, from 0.
        head: index of the head, from 0.
        sublayer: ``attention`` or ``cross``.
        side: ``encoder`` or ``decoder``; None for models with one sequence.
    """

    layer: int
    head: int
    sublayer: str = "attention"
    side: Side | None = None


@dataclass(frozen=True)
class SublayerOff:
    """A sublayer whose output is replaced by zeros at all positions; its residual connection and norm stay.

    Args:
        layer: index of the layer, from 0.
        sublayer: ``attention``, ``cross``, ``feedforward``, or ``stack`` for one after the feed-forward sublayer.
        side: ``encoder`` or ``decoder``; None for models with one sequence.
    """

    layer: int
    sublayer: str = "attention"
    side: Side | None = None


@dataclass(frozen=True)
class ForcedAction:
    """An action that a stack takes at a position, whatever its weights; all other weights stay as they are.

    If the layer has several stacks, all of them take it.

    Args:
        layer: index of the layer, from 0.
        position: index of the input token, from 0.
        action: its name: ``push``, ``pop``, and ``no-op`` or, of a nondeterministic stack, ``replace``.
        sublayer: ``attention``, or ``stack`` for one that is added after the feed-forward sublayer.
        side: ``encoder`` or ``decoder``; None for models with one sequence.
    """

    layer: int
    position: int
    action: str
    sublayer: str = "attention"
    side: Side | None = None


Intervention = HeadOff | SublayerOff | ForcedAction


class InterventionError(UsageError):
    """An intervention does not fit the model or the text; ``reason`` counts neither from 0 nor from 1."""

    def __init__(self, intervention: Intervention, reason: str) -> None:
        super().__init__(f"{intervention}: {reason}")
        self.intervention, self.reason = intervention, reason


SUBLAYERS: Final = ("attention", "cross", "feedforward", "stack")


@contextmanager
def intervened(model: nn.Module, interventions: Sequence[Intervention]) -> Iterator[None]:
    """Apply interventions to the computation on whole sequences within the context.

    They have no effect on ``step``, hence none on generation and search, nor on other threads that compute the model.

    Raises:
        UsageError: the model has no such layer, head, stack or action, or an action cannot be taken there.
    """
    forced: dict[nn.Module, list[ForcedAction]] = {}
    with ExitStack() as stack:
        for each in interventions:
            residual = _residual(model, each)
            if isinstance(each, ForcedAction):
                forced.setdefault(residual.layer, []).append(each)
            else:
                stack.enter_context(_attending_without(residual, each))
            for handle in _hooks(residual.layer, each):
                stack.callback(handle.remove)
        for layer, actions in forced.items():
            _require_possible(layer, sorted(actions, key=lambda each: each.position))
        yield


def _require_possible(layer: nn.Module, actions: Sequence[ForcedAction]) -> None:
    """Refuse actions of a layer, by position, that its stacks cannot take together."""
    for one, other in pairwise(actions):
        if one.position == other.position:
            raise InterventionError(other, f"{one.action!r} is forced at the same position")
    if isinstance(layer, StackPointerAttention) and layer.bottom is None and actions[0].position == 0:
        raise InterventionError(actions[0], "the first token stands for the empty stack and has no action")
    if isinstance(layer, NondeterministicStackAttention):
        end, pushed = 0, list[int]()  # where the items were pushed, if all steps that are not forced push
        for each in actions:
            pushed += range(max(end, each.position - len(actions)), each.position)  # no more of them can be popped
            end = each.position + 1
            if each.action == "push":
                pushed.append(each.position)
            elif each.action == "pop":
                if not pushed:
                    raise InterventionError(each, "only the bottom is on the stack, which is not popped")
                age = each.position - pushed.pop()
                if layer.window is not None and age > layer.window:
                    older = f"what is on the stack is older than the window of {layer.window} steps"
                    raise InterventionError(each, older)


def layers_by_side(model: nn.Module) -> Mapping[Side | None, Layers]:
    """Return the layers of a transformer on each side; of a model with one sequence, those of None.

    Raises:
        UsageError: the model is no transformer of this package, or its layers are looped.
    """
    sides: Sequence[Side | None] = ("encoder", "decoder") if isinstance(model, EncoderDecoder) else (None,)
    found = {side: getattr(model, side or "layers", None) for side in sides}
    for layers in found.values():
        if not isinstance(layers, Layers):
            looped = isinstance(layers, LoopedLayers | PaddedLayers)
            given = f"a {type(model).__name__}" + " of looped layers" * looped
            raise UsageError(f"interventions are for transformers of structattn without loops; the model is {given}")
    return cast(Mapping[Side | None, Layers], found)


def _residual(model: nn.Module, where: Intervention) -> Residual:
    """Return the sublayer of an intervention."""
    sides = layers_by_side(model)
    if where.side not in sides:
        has = "expected a side, encoder or decoder" if where.side is None else f"the model has no {where.side}"
        raise InterventionError(where, has)
    blocks = sides[where.side].blocks
    if not 0 <= where.layer < len(blocks):
        raise InterventionError(where, f"there is no such layer; the model has {len(blocks)}")
    residual: Residual | None = getattr(blocks[where.layer], where.sublayer, None)
    if where.sublayer not in SUBLAYERS or residual is None:
        raise InterventionError(where, f"the layer has no sublayer {where.sublayer!r}")
    return residual


@contextmanager
def _attending_without(residual: Residual, off: HeadOff | SublayerOff) -> Iterator[None]:
    """Let ``attend`` of a sublayer, which calls no hooks, return the output of ``forward``, and a part no weights."""
    before, attend = vars(residual).get("attend"), residual.attend

    def without(x: HiddenStates, *arguments: Any) -> tuple[HiddenStates, Tensor | None]:
        y, weights = residual(x, *arguments), attend(x, *arguments)[1]
        if weights is None:
            return y, None
        heads = [off.head] if isinstance(off, HeadOff) else range(weights.shape[1])
        return y, weights.index_fill(1, torch.tensor(heads, device=weights.device), 0)

    here = in_this_thread(without)
    vars(residual)["attend"] = lambda *arguments: here(*arguments) or attend(*arguments)
    try:
        yield
    finally:
        if before is None:
            del residual.attend
        else:
            vars(residual)["attend"] = before


def _hooks(layer: nn.Module, intervention: Intervention) -> list[Any]:
    if isinstance(intervention, ForcedAction):
        return _action_hooks(layer, intervention)
    if isinstance(intervention, HeadOff):
        return _head_hooks(layer, intervention)
    return [layer.register_forward_hook(in_this_thread(_zeros))]


def _zeros(module: nn.Module, inputs: Any, output: HiddenStates) -> HiddenStates:
    return output.map(torch.zeros_like) if isinstance(output, Streams) else torch.zeros_like(output)


def _head_projections(layer: nn.Module) -> list[nn.Module]:
    """Return the modules of a layer whose input is the concatenated outputs of its heads; none of most stacks."""
    return [module for module in layer.modules() if isinstance(module, OutputProjection | NoOutputProjection)]


def num_heads(layer: nn.Module) -> int:
    """Return how many heads of a layer can be switched off; 0 for one without output projections of heads."""
    heads: int = getattr(layer, "num_heads", 0) if _head_projections(layer) else 0
    return heads


def _head_hooks(layer: nn.Module, off: HeadOff) -> list[Any]:
    heads = num_heads(layer)
    if not heads:
        raise InterventionError(off, f"{type(layer).__name__} has no heads to switch off")
    if not 0 <= off.head < heads:
        raise InterventionError(off, f"there is no such head; the layer has {heads}")

    def without_head(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        outputs = torch.unflatten(inputs[0], -1, (heads, -1))
        return (outputs.index_fill(-2, torch.tensor([off.head], device=outputs.device), 0).flatten(-2),)

    return [module.register_forward_pre_hook(in_this_thread(without_head)) for module in _head_projections(layer)]


def _action_hooks(layer: nn.Module, forced: ForcedAction) -> list[Any]:
    action_logits: Callable[[int], Tensor] | None = getattr(layer, "action_logits", None)
    if action_logits is None:
        raise InterventionError(forced, f"{type(layer).__name__} is not a stack")
    names = action_names("nondeterministic" if isinstance(layer, NondeterministicStackAttention) else "superposition")
    if forced.action not in names:
        raise InterventionError(forced, f"unknown action {forced.action!r}; expected one of {', '.join(names)}")
    others = [action_logits(index) for index, name in enumerate(names) if name != forced.action]
    never = torch.stack(others).any(0)

    def with_action(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        time = output.shape[1]
        if not 0 <= forced.position < time:
            raise InterventionError(forced, f"there is no such token; the text has {time}")
        here = torch.arange(time, device=output.device)[:, None] == forced.position
        return output.masked_fill(here & never.to(output.device), -torch.inf)

    projection: nn.Module = layer.get_submodule("projection")
    return [projection.register_forward_hook(in_this_thread(with_action))]
