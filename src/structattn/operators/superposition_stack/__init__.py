"""The superposition stack: a stack whose every row is the expectation over independent actions."""

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, computing_precision, integer_lengths, require_shape
from structattn.operators.common.gpu import tf32_allowed
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.superposition_stack.cpu import superposition_stack_cpu
from structattn.operators.superposition_stack.gpu import superposition_stack_gpu
from structattn.operators.superposition_stack.reference import SuperpositionAction, superposition_stack_reference
from structattn.operators.superposition_stack.step import superposition_step
from structattn.support.shapes import Float, Lengths

__all__ = ["SuperpositionAction", "superposition_stack", "superposition_stack_weights", "superposition_step"]


def superposition_stack(
    actions: Float[Tensor, "batch time 3"],
    values: Float[Tensor, "batch time vector"],
    *,
    initial: Float[Tensor, "batch vector"] | None = None,
    lengths: Lengths = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time vector"]:
    """Readings of a superposition stack (DuSell & Chiang 2024, section 3.2.1, equations 4 to 8).

    The stack starts empty, or with ``initial`` in every row. Step t applies its action and its vector, then reads the
    top: V_t[i] = push_t * V_{t-1}[i-1] + noop_t * V_{t-1}[i] + pop_t * V_{t-1}[i+1], V_{t-1}[0] = v_t, r_t = V_t[1].
    For probabilities this is the expected top of an ordinary stack that samples each action independently, an empty
    stack reading zero and a pop of it doing nothing.

    Cost: O(B * T^2 * m) time; O(T^2 * m) memory for each thread, O(T^1.5 * m) for long sequences.

    Args:
        actions: push, no-op and pop (``SuperpositionAction``) of every step, taken as they are: not checked to sum to
            1, never normalised.
        values: the vector that each step pushes.
        initial: what every row holds before the first step, V_0[i]; zeros where None. There is no last row: with
            probabilities, the reading is the expected top where an empty stack reads ``initial``.
        lengths: the number of steps of each sequence, 0 to T; all T where None. Steps from there on give zeros,
            forward and backward, whatever the arguments contain there.
        implementation: "reference" is the definition, which alone supports double backward; "cpu" the compiled kernel;
            "gpu" the Triton kernel; "auto" takes the kernel of the tensors' device if it can run.

    Returns:
        The readings, in the dtype of the arguments (float32 where autocast lowered them).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    require_shape("actions", actions, (None, None, 3), "(B, T, 3)")
    batch, time, _ = actions.shape
    require_shape("values", values, (batch, time, None), "(B, T, m)")
    if initial is not None:
        require_shape("initial", initial, (batch, values.shape[2]), "(B, m)")
    choice = chosen_implementation("superposition_stack", implementation, values.device, gpu_kernel=True)
    given = {"actions": actions, "values": values} | ({} if initial is None else {"initial": initial})
    (actions, values, *rest), dtype = computing_precision(**given)
    row = rest[0] if rest else None
    if choice == "cpu":
        integers = integer_lengths(lengths, batch, values.device)
        return superposition_stack_cpu(actions, values, integers, row).to(dtype)
    checked = checked_lengths(lengths, batch, time, values.device)
    if choice == "gpu":
        tf32 = tf32_allowed(values.device)
        return superposition_stack_gpu(actions, values, checked, row, tf32).to(dtype)
    return superposition_stack_reference(actions, values, checked, row).to(dtype)


def superposition_stack_weights(
    actions: Float[Tensor, "batch time 3"], *, lengths: Lengths = None, implementation: Implementation = "auto"
) -> Float[Tensor, "batch time time"]:
    """The readings as attention: reading_t = sum_j weights[t, j] * v_j; column j is the weight of the vector of step j.

    They are the readings of a stack onto which step j pushes the j-th unit vector. Row t sums to the probability that
    the stack is not empty after step t; columns after t are zero. Cost: O(B * T^3).

    Raises:
        ValueError, ImplementationUnavailableError: as ``superposition_stack``.
    """
    require_shape("actions", actions, (None, None, 3), "(B, T, 3)")
    batch, time, _ = actions.shape
    units = torch.eye(time, dtype=actions.dtype, device=actions.device).expand(batch, time, time)
    return superposition_stack(actions, units, lengths=lengths, implementation=implementation)
