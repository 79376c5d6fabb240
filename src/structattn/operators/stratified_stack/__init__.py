"""The stratified stack: a stack whose items have strengths, and whose reading is one unit of them from the top."""

import torch
from torch import Tensor

from structattn.operators.common.checks import (
    checked_lengths,
    computing_precision,
    integer_lengths,
    require_shape,
    without_autocast,
)
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.stratified_stack.cpu import stratified_stack_cpu
from structattn.operators.stratified_stack.gpu import stratified_stack_gpu
from structattn.operators.stratified_stack.reference import (
    StratifiedAction,
    stratified_shares,
    stratified_stack_reference,
    stratified_step,
)
from structattn.support.shapes import Float, Lengths

__all__ = [
    "StratifiedAction",
    "stratified_shares",
    "stratified_stack",
    "stratified_stack_weights",
    "stratified_step",
]


def stratified_stack(
    actions: Float[Tensor, "batch time 2"],
    values: Float[Tensor, "batch time vector"],
    *,
    lengths: Lengths = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time vector"]:
    """Readings of a stratified stack (Grefenstette et al. 2015, section 3.1, equations 1 to 3).

    Step t takes strength u_t off the top, s_t[i] = max(0, s_{t-1}[i] - max(0, u_t - Σ_{j>i} s_{t-1}[j])), puts v_t on
    it with strength s_t[t] = d_t, and reads one unit from the top:

    r_t = Σ_i min(s_t[i], max(0, 1 - Σ_{j>i} s_t[j])) v_i.

    With strengths 0 and 1 it is an ordinary stack, where an empty stack reads zero.

    Cost: O(B * T^2 * m) time; the gradient keeps T^2 / 2 strengths for each thread.

    Args:
        actions: the strengths d of the push and u of the pop of every step (``StratifiedAction``), from 0 to 1 as a
            rule, taken as they are.
        values: the vector that each step pushes.
        lengths: the number of steps of each sequence, 0 to T; all T where None. Steps from there on give zeros,
            forward and backward, whatever the arguments contain there.
        implementation: "reference" is the definition, which alone supports double backward; "cpu" the compiled kernel;
            "gpu" all steps at once; "auto" takes that of the tensors' device if it can run.

    Returns:
        The readings, in the dtype of the arguments (float32 where autocast lowered them).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    require_shape("actions", actions, (None, None, 2), "(B, T, 2)")
    batch, time, _ = actions.shape
    require_shape("values", values, (batch, time, None), "(B, T, m)")
    choice = chosen_implementation("stratified_stack", implementation, values.device, gpu_kernel=True)
    (actions, values), dtype = computing_precision(actions=actions, values=values)
    if choice == "cpu":
        integers = integer_lengths(lengths, batch, values.device)
        return stratified_stack_cpu(actions, values, integers).to(dtype)
    checked = checked_lengths(lengths, batch, time, values.device)
    compute = stratified_stack_gpu if choice == "gpu" else stratified_stack_reference
    with without_autocast(values.device):
        return compute(actions, values, checked).to(dtype)


def stratified_stack_weights(
    actions: Float[Tensor, "batch time 2"], *, lengths: Lengths = None, implementation: Implementation = "auto"
) -> Float[Tensor, "batch time time"]:
    """The readings as attention: reading_t = Σ_j weights[t, j] v_j; column j is the weight of the vector of step j.

    Rows sum to at most 1, to less where there is less than one unit on the stack; columns after t are zero. Cost:
    O(B * T^3).

    Raises:
        ValueError, ImplementationUnavailableError: as ``stratified_stack``.
    """
    require_shape("actions", actions, (None, None, 2), "(B, T, 2)")
    batch, time, _ = actions.shape
    units = torch.eye(time, dtype=actions.dtype, device=actions.device).expand(batch, time, time)
    return stratified_stack(actions, units, lengths=lengths, implementation=implementation)
