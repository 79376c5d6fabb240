"""What every cross-attention layer must do: checks of a layer in evaluation mode.

The examples are sequences x (B, T, d_model) and memories (B, S, d_model). Each check raises ``BrokenContractError``;
see ``contract`` for self-attention.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from structattn.attention.contract import (
    ALONE,
    BEFORE,
    ORDINARY,
    POISON,
    by_steps,
    check_weights,
    require_close,
    require_equal,
    require_same_steps,
    require_zero,
)
from structattn.support.errors import BrokenContractError


def check_cross_positions(layer: nn.Module, x: Tensor, memory: Tensor) -> None:
    """Positions do not see each other."""
    changed = x.clone()
    changed[:, ::2] = 2.0
    found = layer(changed, memory)[:, 1::2]
    require_equal("an output after a change of other positions", found, BEFORE, layer(x, memory)[:, 1::2])


def check_cross_padding(layer: nn.Module, x: Tensor, memory: Tensor) -> None:
    """Padding on either side has no influence, even NaN; outputs and gradients are zero there."""
    lengths = _lengths(x, memory)
    outside = [_past(x, lengths[0]), _past(memory, lengths[1])]
    clean = _gradients(layer, x, memory, lengths, torch.ones_like(x))
    for poison in POISON:
        poisoned = [t.masked_fill(past, poison) for t, past in zip((x, memory), outside, strict=True)]
        weight = torch.ones_like(x).masked_fill(outside[0], poison)
        y, *gradients = _gradients(layer, poisoned[0], poisoned[1], lengths, weight)
        require_equal(f"an output beside padding that holds {poison}", y, ORDINARY, clean[0])
        require_zero(f"the output at padding that holds {poison}", y.masked_select(outside[0]))
        for gradient, past in zip(gradients, outside, strict=False):
            require_zero("the gradient of padding", gradient.masked_select(past))
        for gradient, expected in zip(gradients, clean[1:], strict=True):
            require_equal(f"a gradient beside padding that holds {poison}", gradient, ORDINARY, expected)


def check_cross_batches(layer: nn.Module, x: Tensor, memory: Tensor) -> None:
    """A sequence and its memory alone equal the same in a padded batch, in any order; so do their gradients."""
    given, whole = _lengths(x, memory), [torch.full((len(t),), t.shape[1]) for t in (x, memory)]
    weight = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape).sin().masked_fill(_past(x, given[0]), 0)
    for lengths in (given, (given[0], None), (None, given[1])):
        ends = [full if each is None else each for each, full in zip(lengths, whole, strict=True)]
        y, grad_x, grad_memory, *grads = _gradients(layer, x, memory, lengths, weight)
        sums = [torch.zeros_like(grad) for grad in grads]
        for b, (end, stop) in enumerate(zip(*(each.tolist() for each in ends), strict=True)):
            one = slice(b, b + 1)
            alone = _gradients(layer, x[one, :end], memory[one, :stop], (None, None), weight[one, :end])
            require_close("an output in a batch", y[b, :end], ALONE, alone[0][0], 1e-12)
            require_close("a gradient in a batch", grad_x[b, :end], ALONE, alone[1][0], 1e-12)
            require_close("the gradient of a memory in a batch", grad_memory[b, :stop], ALONE, alone[2][0], 1e-12)
            sums = [total + grad for total, grad in zip(sums, alone[3:], strict=True)]
        for result, expected in zip(grads, sums, strict=True):
            require_close("the gradient of a parameter in a batch", result, "the sum of those", expected, 1e-11)
    full = layer(x, memory, *whole)
    require_equal("an output with lengths of whole sequences", full, "that without lengths", layer(x, memory))
    order = torch.arange(len(x)).roll(1)
    found = layer(x[order], memory[order], *(each[order] for each in given))
    expected = layer(x, memory, *given)[order]
    require_close("an output in another order of the batch", found, BEFORE, expected, 1e-15)


def check_cross_steps(layer: Any, x: Tensor, memory: Tensor) -> None:
    """Steps equal the whole sequence, and so do their gradients."""
    layer = copy.deepcopy(layer).to(x.dtype)
    x, memory = x.detach().requires_grad_(), memory.detach().requires_grad_()
    for ends in (None, _lengths(x, memory)[1]):
        steps = partial(lambda ends: by_steps(layer, layer.initial_state(memory, ends), x), ends)
        require_same_steps([x, memory, *layer.parameters()], layer(x, memory, None, ends), steps)


def check_cross_steps_in_float32(layer: nn.Module, x: Tensor, memory: Tensor) -> None:
    """Steps equal the whole sequence in float32, too."""
    check_cross_steps(layer, x.float(), memory.float())


@torch.no_grad()
def check_cross_states(layer: Any, x: Tensor, memory: Tensor) -> None:
    """A state is a value: a step leaves it as it was; select copies members of the batch."""
    for memory_lengths in (None, _lengths(x, memory)[1]):
        _, state = layer.step(x[:, 0], layer.initial_state(memory, memory_lengths))
        first, _ = layer.step(x[:, 1], state)
        layer.step(x[:, 2], state)
        require_equal("a second step from the same state", layer.step(x[:, 1], state)[0], "the first", first)
        chosen = torch.arange(len(x)).repeat_interleave(2).roll(1)
        selected, _ = layer.step(x[chosen, 1], state.select(chosen))
        require_close("a step from a selected state", selected, "that from the whole one", first[chosen], 1e-14)


def check_cross_gradients(layer: nn.Module, x: Tensor, memory: Tensor, fast: bool = False) -> None:
    """Gradients agree with finite differences in float64."""
    leaves = [x[:2, :2].detach().requires_grad_(), memory[:2, :3].detach().requires_grad_(), *layer.parameters()]
    ends = torch.tensor([2, 1]), torch.tensor([1, 3])
    if not gradcheck(lambda x, memory, *_: layer(x, memory, *ends), leaves, fast_mode=fast, raise_exception=False):
        raise BrokenContractError("a gradient is not that of finite differences in float64")


def check_cross_empty(layer: nn.Module, x: Tensor, memory: Tensor) -> None:
    """One position, none, an empty memory and an empty batch work; sequences of length 0 give zeros."""
    for batch, time, source in ((2, 1, 1), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 3, 4)):
        part, of_memory = x[:batch, :time], memory[:batch, :source]
        y, *grads = _gradients(layer, part, of_memory, (None, None), torch.ones_like(part))
        shapes = f"of inputs {tuple(part.shape)} and {tuple(of_memory.shape)}"
        if y.shape != part.shape:
            raise BrokenContractError(f"{shapes}, the output has shape {tuple(y.shape)}")
        if not all(grad.isfinite().all() for grad in grads):
            raise BrokenContractError(f"{shapes}, a gradient is not finite")
        empty = torch.zeros(batch, dtype=torch.int64)
        require_zero("the output of a sequence of length 0", layer(part, of_memory, empty, empty))


def check_cross_explanation(layer: Any, x: Tensor, memory: Tensor) -> None:
    """Weights of explain, (B, heads, T, S), are zero at padding of both sides and without gradients."""
    lengths = _lengths(x, memory)
    record = layer.explain(x, memory, *lengths)
    shape, (batch, time), source = tuple(record.weights.shape), x.shape[:2], memory.shape[1]
    if len(shape) != 4 or (shape[0], *shape[2:]) != (batch, time, source):
        raise BrokenContractError(f"weights have shape {shape}; expected ({batch}, heads, {time}, {source})")
    past, hidden = _past(x, lengths[0])[..., 0], _past(memory, lengths[1])[..., 0]
    for name, tensor in {"weights": record.weights.transpose(1, 2), **record.details}.items():
        if tensor.requires_grad:
            raise BrokenContractError(f"{name} have gradients")
        require_zero(f"the {name} at padding", tensor[past])
        require_zero(f"the {name} of padding of the memory", tensor.movedim(3, 1)[hidden])


CROSS_CHECKS: Final[Mapping[str, Callable[[Any, Tensor, Tensor], None]]] = MappingProxyType(
    {
        "steps": check_cross_steps,
        "steps in float32": check_cross_steps_in_float32,
        "positions": check_cross_positions,
        "batches": check_cross_batches,
        "padding": check_cross_padding,
        "states": check_cross_states,
        "gradients": check_cross_gradients,
        "weights": check_weights,
        "empty": check_cross_empty,
        "explanation": check_cross_explanation,
    }
)


def _gradients(
    layer: nn.Module, x: Tensor, memory: Tensor, lengths: tuple[Tensor | None, Tensor | None], weight: Tensor
) -> tuple[Tensor, ...]:
    """Return the output, and the gradients of x, the memory and all parameters for a cotangent."""
    leaves = [x.detach().requires_grad_(), memory.detach().requires_grad_()]
    y = layer(*leaves, *lengths)
    return y.detach(), *torch.autograd.grad(y, [*leaves, *layer.parameters()], weight, materialize_grads=True)


def _lengths(x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return lengths of both sides: of one example all positions, of another none."""
    order = torch.arange(len(x))
    return order.flip(0) * x.shape[1] // max(1, len(x) - 1), (order + 1) * memory.shape[1] // len(x)


def _past(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1]) >= lengths[:, None])[..., None]
