"""The nondeterministic stack one step at a time, and the definition of a step.

The definition is in torch alone: any device and dtype, any derivative, traceable. Vectors may have any sign, but the
semiring is restricted to positive numbers: v is represented by the pair v + s, s with constant s = |v| + 1, and the two
readings are subtracted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import register_dataclass

from structattn.operators.common.checks import is_autocast, require_alike, require_shape
from structattn.operators.common.differentiation import in_forward_mode, transforms_active
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.nondeterministic_stack import reference
from structattn.operators.nondeterministic_stack.arguments import NondeterministicStackState, checked_window
from structattn.operators.nondeterministic_stack.cpu.steps import KernelState
from structattn.operators.nondeterministic_stack.gpu.steps import GpuState
from structattn.support.shapes import Float


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
            kernel; "gpu" the Triton kernels, for steps without derivatives: where a step needs one, the definition
            takes over, from the first step on. "auto" takes the kernel if it can run.

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
    choice = chosen_implementation("nondeterministic_stack_step", implementation, bottom.device, gpu_kernel=True)
    traced = torch.compiler.is_compiling() or transforms_active() or in_forward_mode()
    if choice == "cpu" and not (traced and implementation == "auto"):
        return KernelState.initial(bottom, batch_size, states, symbols, window)
    if choice == "gpu" and not _needs_definition(bottom):
        return GpuState.initial(bottom, batch_size, states, symbols, window)
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
        On a CPU t²/2 · Q³S multiply-adds for step t, or D²/2 · Q³S with a window D; twice that backwards. A state that
        is stepped for the second time is copied first, t² · Q²S numbers. Where there are more than 3 states or symbols,
        or the range of doubles is exceeded (DERIVATION.md, "Range"), each step recomputes all steps. On a GPU t²/2 ·
        Q³S² exponentials, or D²/2 · Q³S², in two launches; t · Q²S² numbers are added, and none is ever copied.
    """
    dtype = push_t.dtype
    given = {"push_t": push_t, "replace_t": replace_t, "pop_t": pop_t, "value_t": value_t}
    if is_autocast(push_t.device):
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
    if isinstance(state, GpuState) and _needs_definition(*ready.values()):
        state = ReferenceState.of_steps(state)
    after = state.after(tuple(logits), value)
    return after.reading.to(dtype), after


def _needs_definition(*tensors: Tensor) -> bool:
    """Return whether the Triton kernels cannot take these: they have no derivatives and cannot be traced."""
    derivative = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return derivative or torch.compiler.is_compiling() or transforms_active() or in_forward_mode()


@dataclass(eq=False)
class ReferenceState(NondeterministicStackState):
    """The columns of all steps so far.

    Attributes:
        columns: the columns of times -2 .. t side by side, (B, i, k, Q, S, Q, S, 1+2m), i = -3 .. t-1.
        alphas: alpha at times -3 .. t, (B, i, Q, S).
        window: maximum number of steps between a push and its pop, or None.
    """

    columns: Tensor
    alphas: Tensor
    window: int | None

    @staticmethod
    def initial(bottom: Tensor, batch: int, states: int, symbols: int, window: int | None) -> "ReferenceState":
        """Return the state before the first step."""
        pair = _positive_pair(bottom.expand(batch, -1))
        columns, alphas = reference.first_columns(pair, states, symbols)
        totals = alphas[-1][..., None] + pair[:, None, None]
        return ReferenceState(
            _reading(totals), reference.side_by_side(columns, columns[-1].shape[1]), torch.stack(alphas, 1), window
        )

    @staticmethod
    @torch.no_grad()
    def of_steps(state: GpuState) -> "ReferenceState":
        """Return the state after the same steps by the definition, without gradient history."""
        batch, Q, S, _ = state.reading.shape
        result = ReferenceState.initial(state.bottom, batch, Q, S, state.window)
        for logits, value in state.steps():
            result = result.after(logits, value)
        return result

    def select(self, indices: Tensor) -> "ReferenceState":
        """Return the states of some members of the batch."""
        reading, columns, alphas = (x.index_select(0, indices) for x in (self.reading, self.columns, self.alphas))
        return ReferenceState(reading, columns, alphas, self.window)

    def detach(self) -> "ReferenceState":
        """Return the same state without gradient history."""
        return ReferenceState(self.reading.detach(), self.columns.detach(), self.alphas.detach(), self.window)

    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "ReferenceState":
        """Append a column. Cost: time t² · Q³S² · (1+2m); all columns, t² · Q²S² · (1+2m) numbers, are copied."""
        push, replace, pop = logits
        past, last = self.columns[:, :, :-1], self.columns[:, :, -1]
        popped = reference.reached_by_pop(reference.log_sum, past, last, pop, self.window)
        column = reference.next_column(reference.log_sum, last, popped, push, replace, _positive_pair(value))
        totals = reference.prefixes(reference.log_sum, self.alphas, column)
        before = reference.lengthened(self.columns, column.shape[1])
        return ReferenceState(
            _reading(totals),
            torch.cat([before, column[:, :, None]], 2),
            torch.cat([self.alphas, totals[:, None, ..., 0]], 1),
            self.window,
        )


register_dataclass(ReferenceState)


def _positive_pair(vector: Tensor) -> Tensor:
    """Return the logarithms of 1, of v + s and of s, (B, 1+2m)."""
    shift = vector.detach().nan_to_num().abs() + 1
    return torch.cat([vector.new_zeros(vector.shape[0], 1), (vector + shift).log(), shift.log()], 1)


def _reading(totals: Tensor) -> Tensor:
    """Compute the reading (29) from the totals of v + s and s."""
    share, _ = reference.share_of_all(totals)
    raised, shift = share[..., 1:].chunk(2, -1)
    return raised - shift
