"""Stack pointer attention: the distribution over the position on top of a stack."""

import torch
from torch import Tensor

from structattn.operators.common.checks import (
    checked_lengths,
    computing_precision,
    integer_lengths,
    require_shape,
    without_autocast,
)
from structattn.operators.common.gpu import tf32_allowed
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.stack_pointer.cpu import (
    map_is_cheaper,
    readings_by_map,
    readings_by_stack,
    stack_pointer_map,
)
from structattn.operators.stack_pointer.gpu import stack_pointer_gpu_map
from structattn.operators.stack_pointer.reference import stack_pointer_reference, stack_pointer_weights_reference
from structattn.operators.superposition_stack.gpu import superposition_stack_gpu
from structattn.operators.superposition_stack.step import endless_superposition_step
from structattn.support.shapes import Float, Lengths

__all__ = ["stack_pointer", "stack_pointer_step", "stack_pointer_weights"]


def stack_pointer(
    actions: Float[Tensor, "batch time 3"],
    values: Float[Tensor, "batch time+1 vector"],
    *,
    lengths: Lengths = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time vector"]:
    """Readings of stack pointer attention (Li et al. 2024, section 3.2, equations 19 to 25).

    alpha_t is the distribution over the index on top of the stack after step t: alpha_0 = e_0, the empty stack, and

        alpha_t = push_t e_t + noop_t alpha_{t-1} + pop_t (sum_{j>=1} alpha_{t-1}(j) alpha_{j-1} + alpha_{t-1}(0) e_0)

    The reading is sum_{n<=t} alpha_t(n) values[n]. For probabilities, alpha_t is exactly the law of the top when each
    step draws its action independently; popping the empty stack does nothing.

    Cost: the cheaper of O(B * (T^3 + T^2 * d)) by the map and O(B * T^2 * d) by a stack of values, whose constant is
    larger; which, depends on T and d alone. Memory: O(B * T^2) by the map, that of ``superposition_stack`` otherwise.

    Args:
        actions: push, no-op and pop (``SuperpositionAction``) of every step, taken as they are: not checked to sum to
            1, never normalised.
        values: ``values[:, 0]`` is read from the empty stack, ``values[:, t]`` belongs to step t, counted from 1.
        lengths: the number of steps of each sequence, 0 to T; all T where None. Steps from there on, and their values,
            give zeros, forward and backward, whatever the arguments contain there.
        implementation: "reference" is the definition, which alone supports double backward; "cpu" the compiled
            kernels; "gpu" the Triton kernels; "auto" takes the kernels of the tensors' device if they can run.

    Returns:
        The readings, in the dtype of the arguments (float32 where autocast lowered them).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    require_shape("actions", actions, (None, None, 3), "(B, T, 3)")
    batch, time, _ = actions.shape
    require_shape("values", values, (batch, time + 1, None), "(B, T + 1, d)")
    choice = chosen_implementation("stack_pointer", implementation, values.device, gpu_kernel=True)
    (actions, values), dtype = computing_precision(actions=actions, values=values)
    if choice == "cpu":
        integers = integer_lengths(lengths, batch, values.device)
        exporting = torch.compiler.is_exporting()  # the program serves any length
        way = readings_by_map if exporting or map_is_cheaper(time, values.shape[2]) else readings_by_stack
        return way(actions, values, integers).to(dtype)
    checked = checked_lengths(lengths, batch, time, values.device)
    if choice == "gpu":
        tf32 = tf32_allowed(values.device)
        return superposition_stack_gpu(actions, values[:, 1:], checked, values[:, 0], tf32).to(dtype)
    with without_autocast(values.device):
        return stack_pointer_reference(actions, values, checked).to(dtype)


def stack_pointer_weights(
    actions: Float[Tensor, "batch time 3"], *, lengths: Lengths = None, implementation: Implementation = "auto"
) -> Float[Tensor, "batch time time+1"]:
    """Return alpha_1 .. alpha_T (equation 23): row t - 1 contains the weights of the values after step t.

    Column 0 is the empty stack, column n the value of step n; columns after the row's own step are zero. A row sums to
    1 if its actions and all earlier ones do. Cost: O(B * T^3): T^3 / 6 multiply-adds forward, T^3 / 3 backward.

    Raises:
        ValueError, ImplementationUnavailableError: as ``stack_pointer``.
    """
    require_shape("actions", actions, (None, None, 3), "(B, T, 3)")
    batch, time, _ = actions.shape
    choice = chosen_implementation("stack_pointer", implementation, actions.device, gpu_kernel=True)
    (actions,), dtype = computing_precision(actions=actions)
    if choice == "cpu":
        integers = integer_lengths(lengths, batch, actions.device)
        return stack_pointer_map(actions, integers).to(dtype)
    checked = checked_lengths(lengths, batch, time, actions.device)
    if choice == "gpu":
        return stack_pointer_gpu_map(actions, checked, tf32_allowed(actions.device)).to(dtype)
    with without_autocast(actions.device):
        return stack_pointer_weights_reference(actions, checked).to(dtype)


def stack_pointer_step(
    stack: Float[Tensor, "batch rows vector"], action: Float[Tensor, "batch 3"], value: Float[Tensor, "batch vector"]
) -> Float[Tensor, "batch rows+1 vector"]:
    """Take one step of ``stack_pointer``; the reading is the first row of the result.

    Row k is what k pops would expose; the last row also holds for all larger k. Before the first step there is one row,
    the value of the empty stack. Exact for any actions (DERIVATION.md), in the widest dtype of the three: a stack that
    is kept in half precision is rounded at every step. Cost: O(R * d).

    Args:
        stack: the rows so far, as many as there were steps, and one.
        action: push, no-op, pop.
        value: the value of this step.

    Raises:
        ValueError: the shapes do not fit.
    """
    batch, _, size = stack.shape
    require_shape("action", action, (batch, 3), "(B, 3)")
    require_shape("value", value, (batch, size), "(B, d)")
    return endless_superposition_step(stack, action, value)
