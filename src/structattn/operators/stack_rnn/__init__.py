"""Recurrent networks with stacks: the cell's input includes the last reading, its output controls the stack.

``Cell`` names the kinds of recurrent cell.
"""

from torch import Tensor

from structattn.operators.common.checks import (
    checked_lengths,
    computing_precision,
    integer_lengths,
    require_shape,
    without_autocast,
)
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.stack_rnn.cpu import encoded, stack_rnn_cpu
from structattn.operators.stack_rnn.reference import StackRnnState, stack_rnn_reference
from structattn.operators.stack_rnn.reference import initial_state as stack_rnn_initial_state
from structattn.operators.stack_rnn.reference import step as stack_rnn_step
from structattn.operators.stack_rnn.stacks import Cell, RecurrentStack, gate_factor
from structattn.support.shapes import Float, Lengths

__all__ = [
    "Cell",
    "RecurrentStack",
    "StackRnnState",
    "gate_factor",
    "stack_rnn",
    "stack_rnn_initial_state",
    "stack_rnn_step",
]


def stack_rnn(
    inputs: Float[Tensor, "batch time gates"],
    recurrent: Float[Tensor, "gates sources"],
    heads: Float[Tensor, "outputs units"],
    bias: Float[Tensor, " outputs"],
    bottom: Float[Tensor, " vector"],
    *,
    cell: Cell,
    stack: RecurrentStack,
    lengths: Lengths = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time units"]:
    """Return the hidden states of a recurrent network with a stack (DuSell & Chiang 2024, section 6).

    h_t, c_t = cell(inputs_t + recurrent [h_{t-1}; r_{t-1}], c_{t-1}), where r is the last reading of the stack, and
    heads h_t + bias controls the stack in step t: first the logits of its action, then the vector to push before its
    activation (``RecurrentStack``). h_0 = c_0 = 0; r_0 is the reading of the stack before the first step.

    Cost: B T (G (U + R) + (A + m) U) multiply-adds plus the cost of the stack; twice that in the backward pass, and
    the same again for the gradients of the weights. Sequences are distributed over threads. About G + 4 U + R numbers
    per step are saved for backward, plus those that the stack saves.

    Args:
        inputs: projections of the inputs to the gates, bias included: G = 4 U for an LSTM in torch's order i, f,
            g, o, and U otherwise.
        recurrent: weights from hidden state and reading, U + R numbers, to the gates.
        heads: weights from the hidden state to the stack's action and pushed vector, A + m numbers.
        bias: of ``heads``.
        bottom: the vector at the bottom of a nondeterministic stack, (m,); ignored by the others.
        cell: "lstm", or an Elman cell by its activation, "tanh" or "relu".
        stack: the stack.
        lengths: the number of steps of each sequence, 0 to T; all T where None. Steps from there on give zeros, forward
            and backward, whatever the inputs contain there.
        implementation: "reference" is the definition, which alone supports double backward; "cpu" the compiled kernel;
            "auto" takes the kernel if it can run.

    Returns:
        The hidden states, in the dtype of the inputs (float32 where autocast lowered them).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit, or the cell is unknown.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    require_shape("inputs", inputs, (None, None, None), "(B, T, G)")
    require_shape("heads", heads, (stack.action_size + stack.vector, None), "(A + m, U)")
    (batch, time, gates), units = inputs.shape, heads.shape[1]
    if gates != gate_factor(cell) * units:
        raise ValueError(f"inputs has {gates} gates; expected {gate_factor(cell)} for each of {units} hidden units")
    require_shape("recurrent", recurrent, (gates, units + stack.reading_size), "(G, U + R)")
    require_shape("bias", bias, heads.shape[:1], "(A + m,)")
    require_shape("bottom", bottom, (stack.vector,), "(m,)")
    choice = chosen_implementation("stack_rnn", implementation, inputs.device)
    ready, dtype = computing_precision(inputs=inputs, recurrent=recurrent, heads=heads, bias=bias, bottom=bottom)
    if choice == "cpu":
        integers = integer_lengths(lengths, batch, inputs.device)
        return stack_rnn_cpu(*ready, integers, encoded(cell, stack))[0].to(dtype)
    checked = checked_lengths(lengths, batch, time, inputs.device)
    with without_autocast(inputs.device):
        return stack_rnn_reference(cell, stack, checked, *ready).to(dtype)
