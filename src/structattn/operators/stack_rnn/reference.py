"""The definition of recurrent networks with stacks, one step after another: DuSell & Chiang (2024), section 6.

    h_0 = c_0 = 0, r_0 the reading of the stack before the first step
    h_t, c_t = cell(x_t + W [h_{t-1}; r_{t-1}], c_{t-1})    x_t: what the input adds to the gates, bias included
    (a_t, v_t) = V h_t + b,  v_t squashed                        what the stack is to do
    s_t = stack(s_{t-1}, a_t, v_t),  r_t = reading(s_t)

The reading of step t is seen at t + 1. Shapes: B batch, T time, G gates, U units, R reading, A actions, m vector.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.checks import inside, require_shape, without_autocast
from structattn.operators.common.implementation import Implementation
from structattn.operators.common.states import Selectable
from structattn.operators.stack_rnn.stack_states import StackState, empty_stack
from structattn.operators.stack_rnn.stacks import Cell, RecurrentStack, gate_factor, next_hidden
from structattn.support.shapes import Float, Int


@dataclass(frozen=True)
class StackRnnState(Selectable):
    """State of the network after some steps: an immutable value, through which gradients flow.

    Args:
        hidden: h.
        memory: c of an LSTM; otherwise h.
        stack: the state of the stack; None for a network without one.
    """

    hidden: Float[Tensor, "batch units"]
    memory: Float[Tensor, "batch units"]
    stack: StackState | None


def initial_state(
    bottom: Float[Tensor, " vector"],
    batch_size: int,
    units: int,
    stack: RecurrentStack | None,
    implementation: Implementation = "auto",
) -> StackRnnState:
    """Return zeros and an empty stack, in the dtype and on the device of ``bottom``."""
    zeros = bottom.new_zeros(batch_size, units)
    return StackRnnState(
        zeros, zeros, None if stack is None else empty_stack(stack, bottom, batch_size, implementation)
    )


def step(
    gates: Float[Tensor, "batch gates"],
    recurrent: Float[Tensor, "gates sources"],
    heads: Float[Tensor, "outputs units"] | None,
    bias: Float[Tensor, " outputs"] | None,
    state: StackRnnState,
    cell: Cell,
    stack: RecurrentStack | None,
) -> StackRnnState:
    """Return the state after one step; arguments as for `stack_rnn`, without heads if there is no stack.

    ``state`` is unchanged: it can be stepped again, and the gradients of all successors add up. Under autocast, too,
    it is computed in the dtype of the state. Cost: G (U + R) + (A + m) U multiply-adds for each sequence, and the
    stack's step.

    Raises:
        ValueError: shapes do not fit, or the cell is unknown.
    """
    with without_autocast(gates.device):
        gates = gates.to(torch.promote_types(gates.dtype, state.hidden.dtype))  # autocast may have lowered them
        hidden, memory = _next_hidden(gates, recurrent, state, cell)
        if stack is None or state.stack is None or heads is None:
            return StackRnnState(hidden, memory, None)
        return StackRnnState(hidden, memory, _next_stack(hidden, heads, bias, state.stack, stack))


def _next_hidden(gates: Tensor, recurrent: Tensor, state: StackRnnState, cell: Cell) -> tuple[Tensor, Tensor]:
    seen = state.hidden if state.stack is None else torch.cat([state.hidden, state.stack.reading()], -1)
    size = gate_factor(cell) * state.hidden.shape[1]
    require_shape("gates", gates, (len(seen), size), "(B, G)")
    require_shape("recurrent", recurrent, (size, seen.shape[1]), "(G, U + R)")
    return next_hidden(cell, gates + F.linear(seen, recurrent), state.memory)


def _next_stack(
    hidden: Tensor, heads: Tensor, bias: Tensor | None, state: StackState, stack: RecurrentStack
) -> StackState:
    require_shape("heads", heads, (stack.action_size + stack.vector, hidden.shape[1]), "(A + m, U)")
    if bias is not None:
        require_shape("bias", bias, heads.shape[:1], "(A + m,)")
    actions, numbers = F.linear(hidden, heads, bias).split_with_sizes([stack.action_size, stack.vector], -1)
    return state.after(actions, stack.pushed_vector(numbers))


def stack_rnn_reference(
    cell: Cell,
    stack: RecurrentStack,
    lengths: Int[Tensor, " batch"],
    inputs: Float[Tensor, "batch time gates"],
    recurrent: Float[Tensor, "gates sources"],
    heads: Float[Tensor, "outputs units"],
    bias: Float[Tensor, " outputs"],
    bottom: Float[Tensor, " vector"],
) -> Float[Tensor, "batch time units"]:
    """Return h_t for every step, and zeros from each sequence's length on."""
    here, goes_on = (inside(end, inputs.shape[1])[..., None] for end in (lengths, lengths - 1))
    inputs = torch.where(here, inputs, 0)
    hidden = memory = inputs.new_zeros(inputs.shape[0], heads.shape[1])
    contents = empty_stack(stack, bottom, inputs.shape[0], "reference")
    hiddens = [inputs[:, :0, : heads.shape[1]]]  # with the inputs behind it for autograd, where T = 0
    for gates, seen_later in zip(inputs.unbind(1), goes_on.unbind(1), strict=True):
        hidden, memory = _next_hidden(gates, recurrent, StackRnnState(hidden, memory, contents), cell)
        hiddens.append(hidden[:, None])
        hidden = torch.where(seen_later, hidden, 0)  # padding that overflowed would make the gradients NaN
        contents = _next_stack(hidden, heads, bias, contents, stack)
    return torch.where(here, torch.cat(hiddens, dim=1), 0)
