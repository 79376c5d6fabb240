"""The nondeterministic stack one step at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.operators.common.checks import require_alike, require_shape
from structattn.operators.common.differentiation import in_forward_mode, transforms_active
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.nondeterministic_stack.arguments import checked_window
from structattn.operators.nondeterministic_stack.cpu_steps import KernelState
from structattn.operators.nondeterministic_stack.reference_steps import ReferenceState
from structattn.operators.nondeterministic_stack.states import NondeterministicStackState


def nondeterministic_stack_initial_state(
    bottom: Float[Tensor, " vector"],
    batch_size: int,
    states: int,
    symbols: int,
    *,
    window: int | None = None,
    implementation: Implementation = "auto",
) -> NondeterministicStackState:
    """Return the stack before the first step: state 0, and an item of symbol 0 and vector ``bottom``.

    Args:
        bottom: the vector of the bottom item; its dtype (half precisions become float32) and device are the state's.
        batch_size: B.
        states: Q.
        symbols: S.
        window: as for `nondeterministic_stack`.
        implementation: "reference" is the definition in torch alone, the only one that can be traced (`torch.compile`,
            `torch.export`), transformed (`torch.func`) and differentiated twice or in forward mode; "cpu" the compiled
            kernel; "auto" takes the kernel if it can run.

    Raises:
        ValueError: a shape, size or window does not fit.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    require_shape("bottom", bottom, (None,), "(m,)")
    require_alike(bottom=bottom)
    if batch_size < 0 or states < 1 or symbols < 1:
        raise ValueError(f"{batch_size} sequences, {states} states, {symbols} symbols; expected at least 0, 1 and 1")
    bottom = bottom.to(torch.promote_types(bottom.dtype, torch.float32))
    window = checked_window(window)
    choice = chosen_implementation("nondeterministic_stack_step", implementation, bottom.device)
    traced = torch.compiler.is_compiling() or transforms_active() or in_forward_mode()
    if choice == "cpu" and not (traced and implementation == "auto"):
        return KernelState.initial(bottom, batch_size, states, symbols, window)
    return ReferenceState.initial(bottom, batch_size, states, symbols, window)


def nondeterministic_stack_step(
    push_t: Float[Tensor, "batch state symbol state symbol"],
    replace_t: Float[Tensor, "batch state symbol state symbol"],
    pop_t: Float[Tensor, "batch state symbol state"],
    value_t: Float[Tensor, "batch vector"],
    state: NondeterministicStackState,
) -> tuple[Float[Tensor, "batch state symbol vector"], NondeterministicStackState]:
    """Take one step of `nondeterministic_stack`; return its reading and the state after it.

    Steps give the same readings and gradients as the whole sequence. ``state`` is immutable: it can be stepped again,
    with other inputs, before or after its successors, and the gradients of all successors add up.

    Args:
        push_t: log-weights of this step's transitions, as `nondeterministic_stack` has them for all steps.
        replace_t: as push_t.
        pop_t: as push_t.
        value_t: the vector pushed.
        state: from `nondeterministic_stack_initial_state`, or from another step.

    Returns:
        The reading, in the dtype of the logits (float32 under autocast), and the state after the step.

    Raises:
        ValueError: shapes or dtypes do not fit, or differ from the state's.

    Cost:
        t²/2 · Q³S multiply-adds for step t, or D²/2 · Q³S with a window D; twice that backwards. A state that is
        stepped for the second time is copied first, t² · Q²S numbers. Where there are more than 3 states or symbols, or
        the range of doubles is exceeded (DERIVATION.md, "Range"), each step recomputes all steps.
    """
    dtype = push_t.dtype
    given = {"push_t": push_t, "replace_t": replace_t, "pop_t": pop_t, "value_t": value_t}
    if torch.is_autocast_enabled(push_t.device.type):
        dtype = state.reading.dtype
        given = {name: x.to(dtype) for name, x in given.items()}
    require_alike(**given)
    batch, Q, S, m = state.reading.shape
    require_shape("push_t", push_t, (batch, Q, S, Q, S), "(B, Q, S, Q, S)")
    require_shape("replace_t", replace_t, (batch, Q, S, Q, S), "(B, Q, S, Q, S)")
    require_shape("pop_t", pop_t, (batch, Q, S, Q), "(B, Q, S, Q)")
    require_shape("value_t", value_t, (batch, m), "(B, m)")
    ready = {name: x.to(torch.promote_types(x.dtype, torch.float32)) for name, x in given.items()}
    require_alike(state=state.reading, **ready)
    *logits, value = ready.values()
    after = state.after(tuple(logits), value)
    return after.reading.to(dtype), after
