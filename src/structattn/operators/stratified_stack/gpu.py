"""The stratified stack for GPUs, all steps at once: heights are differences of running sums.

Legend: d the strength of a push, p the effective pop; e_t the level of the top between the pop and the push of step t,
where items never removed would count on; item i lies between the levels e_i and e_k, k > i the next item that is left.
Shapes: B batch, T steps, I items (T as well), m size of a vector. See DERIVATION.md, "All steps at once".
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.checks import inside, without_autocast
from structattn.operators.common.registration import refuse_double_backward, register, save_inputs
from structattn.operators.stratified_stack.cpu import empty_gradients, empty_readings
from structattn.operators.stratified_stack.reference import stratified_stack_reference
from structattn.support.shapes import Bool, Float, Int


class _Levels(NamedTuple):
    """The stack after every step, in double precision: sums of T strengths are subtracted from each other.

    Args:
        push: d, (B, T).
        pops: whether the pop removes anything that is there, (B, T).
        level: e, (B, T).
        heights: d_t + e_t - e_i, how far the bottom of item i is below the top, (B, I, T).
        left: whether some of the item is left, or it is the top one, (B, I, T).
        shares: how much of item i is read at step t, (B, I, T).
    """

    push: Float[Tensor, "batch time"]
    pops: Bool[Tensor, "batch time"]
    level: Float[Tensor, "batch time"]
    heights: Float[Tensor, "batch item time"]
    left: Bool[Tensor, "batch item time"]
    shares: Float[Tensor, "batch item time"]


def _levels(actions: Float[Tensor, "batch time 2"]) -> _Levels:
    push, pop = actions.double().unbind(-1)
    time = push.shape[1]
    before = F.pad(push, (1, 0))[:, :time]
    added = before.clamp(min=0)
    popped = (pop + (-before).clamp(min=0)).clamp(min=0)  # a negative push takes from what is below it
    popped_here = torch.minimum(popped, added.cumsum(1))  # no more than there ever was, so that inf has no effect
    level = (added - popped_here).cumsum(1)
    item, step = torch.arange(time, device=push.device)[:, None], torch.arange(time, device=push.device)
    later = torch.where(step > item, level[:, None], torch.inf)
    top_of_item = later.cummin(2).values if time else later
    left = ((level[:, :, None] < top_of_item) & (step > item)) | (step == item)
    heights = push[:, None] + (level[:, None] - level[:, :, None])
    above = (push[:, None] + (level[:, None] - top_of_item)).clamp(max=1).masked_fill(step == item, 0)
    return _Levels(push, popped > 0, level, heights, left, torch.where(left, heights.clamp(max=1) - above, 0))


def _last_before(which: Bool[Tensor, "batch time earlier"]) -> Int[Tensor, "batch time"]:
    """Return the last earlier step at which ``which`` holds; -1 where there is none."""
    steps = torch.arange(which.shape[2], device=which.device)
    return torch.where(which & (steps < steps[:, None]), steps, -1).amax(2)


def _level_adjoint(
    level: Float[Tensor, "batch time"], adjoint: Float[Tensor, "batch time"]
) -> Float[Tensor, "batch time"]:
    """Return the adjoint of e_t - e_{t-1} from those of all e.

    It is the sum of the adjoints from t on. A pop that ends exactly where an item begins that is left has removed what
    lies above it, whatever its own strength: e is that earlier level then, and what came between has no effect later.
    """
    time = level.shape[1]
    if time == 0:
        return adjoint
    below = _last_before(level[:, None] <= level[:, :, None])
    exact = (below >= 0) & (level.gather(1, below.clamp(min=0)) == level)
    steps = torch.arange(time, device=level.device)
    between = exact[:, None] & (below[:, None] < steps[:, None]) & (steps >= steps[:, None])
    end = torch.where(between, steps, time).amin(2)
    sums = F.pad(adjoint.flip(1).cumsum(1).flip(1), (0, 1))
    return sums[:, :time] - sums.gather(1, end)


def _masked(lengths: Tensor, *tensors: Tensor) -> list[Tensor]:
    here = inside(lengths, tensors[0].shape[1])[..., None]
    return [torch.where(here, tensor, 0) for tensor in tensors]


@register(
    "stratified_stack_gpu_backward",
    devices=("cpu", "cuda"),
    fake=empty_gradients,
    gradient=refuse_double_backward("stratified_stack", "GPU"),
)
def stratified_stack_gpu_backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of actions and values. Cost: O(B * T^2 * m), and O(B * T^2) memory."""
    given, values, cotangent = _masked(lengths, actions, values, cotangent)
    levels = _levels(given)
    push, level = levels.push, levels.level
    with without_autocast(values.device):
        by_item = values @ cotangent.transpose(1, 2)
        grad_values = levels.shares.to(values.dtype) @ cotangent
    if push.shape[1] == 0:
        return torch.zeros_like(actions), grad_values
    # The reading is the sum over items of min(1, height) times what its vector differs from that of the item below it.
    below = _last_before(level[:, None] < level[:, :, None]) + 1
    next_item = F.pad(by_item, (0, 0, 1, 0)).gather(1, below[..., None].expand(by_item.shape))
    heights = torch.where(levels.left & (levels.heights < 1), (by_item - next_item).double(), 0)
    of_others = heights.triu(1)
    change = _level_adjoint(level, of_others.sum(1) - of_others.sum(2))
    grad_pop = torch.where(levels.pops, -change, 0)
    to_previous = F.pad(change[:, 1:], (0, 1))
    negative_counts = F.pad(levels.pops[:, 1:], (0, 1))
    grad_push = heights.sum(1) + torch.where((push >= 0) | negative_counts, to_previous, 0)
    (gradient,) = _masked(lengths, torch.stack([grad_push, grad_pop], -1))
    return gradient.to(actions.dtype), grad_values


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
    saved = ctx.saved_tensors  # read once: activation checkpointing recomputes them on every access
    return *stratified_stack_gpu_backward(cotangent, *saved), None


@register(
    "stratified_stack_gpu",
    devices=("cpu", "cuda"),
    fake=empty_readings,
    gradient=_gradient,
    save=save_inputs,
    definition=stratified_stack_reference,
)
def stratified_stack_gpu(actions: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Readings; arguments as for the public function, checked, float32 or float64.

    Cost: O(B * T^2 * m), and O(B * T^2) memory, in a number of operations that does not depend on T.
    """
    here = inside(lengths, values.shape[1])[..., None]
    actions, values = _masked(lengths, actions, values)
    finite = values.isfinite()
    with without_autocast(values.device):
        shares = _levels(actions).shares.to(values.dtype).transpose(1, 2)
        readings = shares @ torch.where(finite, values, 0)
    # What is not finite stays on the stack, if with no strength, as in the definition.
    spoiled = (~finite).cumsum(1) > 0
    return torch.where(here, readings.masked_fill(spoiled, torch.nan), 0)
