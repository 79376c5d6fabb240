"""The definition of the superposition stack: DuSell & Chiang (2024), section 3.2.1, equations (5) to (8).

Legend: V the stack, a matrix whose row 1 is the top; a the probabilities of push, no-op and pop; v the pushed vector;
r the reading. Shapes: B batch, T time, R rows, m size of a vector.
"""

from enum import IntEnum

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, inside, require_shape
from structattn.operators.common.stack_contents import StackContents, checked_depths
from structattn.support.shapes import Float, Int, Lengths


class SuperpositionAction(IntEnum):
    """Index of each action on the last axis of ``actions``."""

    PUSH = 0
    NO_OP = 1
    POP = 2


def superposition_step(
    stack: Float[Tensor, "batch rows vector"],
    action: Float[Tensor, "batch 3"],
    value: Float[Tensor, "batch vector"],
    depth: int | None = None,
) -> Float[Tensor, "batch next vector"]:
    """Return the stack after one more step, with one more row up to ``depth``; equations (5) to (8).

    V_t[i] = a_push * V_{t-1}[i-1] + a_noop * V_{t-1}[i] + a_pop * V_{t-1}[i+1], where V_{t-1}[0] stands for v_t and
    rows beyond the last are zero. The reading is the first row of the result. Cost: O(R * m).

    Args:
        stack: the rows that may differ from zero; none at the beginning.
        action: push, no-op, pop.
        value: the vector to push.
        depth: the number of rows; those below are dropped (Delétang et al. 2023). None: unlimited, as in the paper.
    """
    zero = stack.new_zeros(stack.shape[0], 1, stack.shape[2])
    return _next_rows(stack, zero, action, value)[:, :depth]


def endless_superposition_step(
    stack: Float[Tensor, "batch rows vector"], action: Float[Tensor, "batch 3"], value: Float[Tensor, "batch vector"]
) -> Float[Tensor, "batch rows+1 vector"]:
    """``superposition_step`` of a stack that is full from the start: its last row represents all rows below it.

    At the beginning there is one row, the initial vector. Cost: O(R * m).
    """
    return _next_rows(stack, stack[:, -1:], action, value)


def _next_rows(stack: Tensor, beyond: Tensor, action: Tensor, value: Tensor) -> Tensor:
    above = torch.cat([value[:, None], stack], dim=1)
    at = torch.cat([stack, beyond], dim=1)
    below = torch.cat([stack, beyond, beyond], dim=1)[:, 1:]
    push, noop, pop = action[:, :, None, None].unbind(1)
    return push * above + noop * at + pop * below


def superposition_stack_reference(
    actions: Float[Tensor, "batch time 3"],
    values: Float[Tensor, "batch time vector"],
    lengths: Int[Tensor, " batch"],
    initial: Float[Tensor, "batch vector"] | None = None,
) -> Float[Tensor, "batch time vector"]:
    """Return r_t = V_t[1] for every step, and zeros from each length on. Cost: O(T^2 * m) in time and memory."""
    here = inside(lengths, values.shape[1])[..., None]
    actions, values = torch.where(here, actions, 0), torch.where(here, values, 0)
    step = superposition_step if initial is None else endless_superposition_step
    stack = values[:, :0] if initial is None else torch.where(lengths[:, None] > 0, initial, 0)[:, None]
    readings = [values[:, :0]]
    for action, value in zip(actions.unbind(1), values.unbind(1), strict=True):
        stack = step(stack, action, value)
        readings.append(stack[:, :1])
    return torch.where(here, torch.cat(readings, dim=1), 0)


@torch.no_grad()
def superposition_stack_contents(
    actions: Float[Tensor, "batch time 3"], depths: int = 10, *, lengths: Lengths = None, limit: int | None = None
) -> StackContents:
    """Return the weight of each pushed vector in each cell: V_t[d] = Σ_j positions[t, d, j] v_j.

    For probabilities this is the law of an ordinary stack whose actions are drawn independently and where a pop of the
    empty stack does nothing, as in ``superposition_stack``. So it is for stack pointers, where the empty stack is no
    item. There is no bottom vector: column 0 of the positions is zero. Not differentiable.

    Cost: O(B * T^3) time, O(B * T^2 * D) memory.

    Args:
        actions: push, no-op and pop of every step, as for ``superposition_stack``.
        depths: D, the number of cells from the top; the height counts all cells.
        lengths: the number of steps of each sequence; all T where None.
        limit: the number of cells that the stack has; None: no limit.

    Raises:
        ValueError: shapes, lengths or depths do not fit.
    """
    require_shape("actions", actions, (None, None, 3), "(B, T, 3)")
    batch, time, _ = actions.shape
    depths = checked_depths(depths)
    here = inside(checked_lengths(lengths, batch, time, actions.device), time)
    actions = torch.where(here[..., None], actions, 0).double()
    units = torch.eye(time, dtype=actions.dtype, device=actions.device)
    cells, height = actions.new_zeros(batch, 0, time), actions.new_zeros(batch, time)
    positions = actions.new_zeros(batch, time, depths, time + 1)
    for t, (action, unit) in enumerate(zip(actions.unbind(1), units, strict=True)):
        cells = superposition_step(cells, action, unit.expand(batch, -1), limit)
        height[:, t] = cells.sum((1, 2))
        positions[:, t, : cells.shape[1], 1:] = cells[:, :depths]
    positions = torch.where(here[..., None, None], positions, 0)
    return StackContents(torch.where(here, height, 0), positions.sum(-1), positions)
