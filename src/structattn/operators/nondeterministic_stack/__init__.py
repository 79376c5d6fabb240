"""Nondeterministic stack attention: the differentiable vector pushdown automaton of DuSell & Chiang (2024).

Which form runs when, and what it earns (DERIVATION.md, "Forms", has the figures):

    whole sequences     cpu/block_*.h, in floats for float32 inputs, in doubles for float64 and where floats may fail
    LSTM+Nd, float32    cpu/lanes.h, called by `stack_rnn`: eight sequences take a step together, a lane for each
    one step at a time  cpu/steps.*, cpu/step_*.h, for decoding, and for LSTM+Nd in float64
    the rest            cpu/general.h: more than 3 states or symbols, and numbers beyond doubles (exponents of 128 bits)
    CUDA                gpu/, in floats where they lose nothing, then in doubles; sequences beyond go back to cpu/
    CUDA, one step      gpu/steps.py, without derivatives; logarithms in doubles, which hold everything
    best run            cpu/kernel.cpp, for tensors on a GPU as well
    contents            block_contents.py; contents.py by the definition where doubles may fail
    everything else     reference.py and steps.py, the definition: any device, any derivative, traceable
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, is_autocast, require_shape
from structattn.operators.common.differentiation import without_history
from structattn.operators.common.gpu import tf32_allowed
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.nondeterministic_stack.arguments import NondeterministicStackState, checked_arguments
from structattn.operators.nondeterministic_stack.cpu import (
    nondeterministic_stack_best_run_cpu,
    nondeterministic_stack_cpu,
)
from structattn.operators.nondeterministic_stack.gpu import readings_on_gpu
from structattn.operators.nondeterministic_stack.gpu.best_run import best_run_by_spans
from structattn.operators.nondeterministic_stack.reference import StackAction, reference_best_run, reference_readings
from structattn.operators.nondeterministic_stack.steps import (
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)
from structattn.support.shapes import Float, Int, Lengths

__all__ = [
    "BestRun",
    "NondeterministicStackState",
    "StackAction",
    "nondeterministic_stack",
    "nondeterministic_stack_best_run",
    "nondeterministic_stack_initial_state",
    "nondeterministic_stack_log_weight",
    "nondeterministic_stack_posteriors",
    "nondeterministic_stack_step",
    "nondeterministic_stack_weights",
]

Push = Float[Tensor, "batch time state symbol state symbol"]
Pop = Float[Tensor, "batch time state symbol state"]
_NAME = "nondeterministic_stack"


class BestRun(NamedTuple):
    """The run of highest weight of each sequence; zeros past its length, and where no run exists."""

    actions: Int[Tensor, "batch time"]
    states: Int[Tensor, "batch time"]
    symbols: Int[Tensor, "batch time"]
    log_weight: Float[Tensor, " batch"]


def nondeterministic_stack(
    push: Push,
    replace: Push,
    pop: Pop,
    values: Float[Tensor, "batch time vector"],
    bottom: Float[Tensor, " vector"],
    *,
    lengths: Lengths = None,
    window: int | None = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time state symbol vector"]:
    """Expected top vector of a weighted pushdown automaton, for each state and top symbol.

    reading_t[r, y] = Σ over runs that end at t in state r with y on top of ψ(run) · top vector / Σ over all runs of
    ψ(run),

    equation (12) of DuSell & Chiang (2024). A run starts in state 0 with symbol 0 and the vector ``bottom`` on the
    stack; its weight ψ is the product of exp(logit) over its transitions. The bottom item can be replaced, never
    popped.

    Args:
        push: log-weights of ``q, x -> r, x y``: keep x, put y and the vector of this step on top of it; indices q, x,
            r, y.
        replace: log-weights of ``q, x -> r, y``: the top symbol changes, its vector stays.
        pop: log-weights of ``q, x -> r``: the top is removed; what lay below is the new top.
        values: the vector pushed at each step.
        bottom: the vector of the bottom item.
        lengths: number of steps of each sequence; all T where None.
        window: D; a pop at step t cannot remove an item pushed before step t - D. Older items can still be replaced and
            pushed on, like the bottom. None: no limit, as in the paper.
        implementation: "auto", "reference" (the published recurrences), "cpu" (the compiled kernel) or "gpu" (the
            Triton kernel).

    Logits may be -1e30 to 1e30, and larger in magnitude where they have no effect; -inf forbids a transition. The
    definition computes log-weights in the dtype of the logits: the error of its readings is about the log-weight times
    the dtype's machine epsilon, and at 2^-6 it refuses. After a step at which nothing is allowed, readings are zero.
    NaN or +inf in a step's logits gives NaN from that step on, in its own sequence. float16 and bfloat16 are computed
    in float32; then the kernel's tables are floats where a bound proves that they lose nothing, and doubles elsewhere
    (DERIVATION.md, "Range").

    Returns:
        The readings in the dtype of the logits; zeros past a sequence's length.

    Raises:
        ValueError: shapes, dtypes or lengths do not fit, or a logit is out of range.
        ImplementationUnavailableError: the requested implementation cannot run here.

    Cost:
        n³/6 · Q³S multiply-adds and n² · Q²S + n · QSm numbers kept for each sequence of n steps; with a window D, no
        more than n · D²/2 · Q³S and 2nD · Q²S; the gradient takes twice that. A sequence beyond the range of doubles,
        or with logits beyond 1e6 that matter, is recomputed with an exponent of 128 bits, much more slowly
        (DERIVATION.md, "Range"). On a GPU, n³/6 · Q³S multiply-adds on tensor cores and n² · Q²S numbers
        (DERIVATION.md, "On a GPU").
    """
    readings, _ = _readings(push, replace, pop, values, bottom, lengths, window, implementation)
    return _rounded(readings, push)


def nondeterministic_stack_weights(
    push: Push,
    replace: Push,
    pop: Pop,
    *,
    lengths: Lengths = None,
    window: int | None = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time state symbol source"]:
    """Return the readings as attention weights: reading_t[r, y] = Σ_j weights_t[r, y, j] · v_j.

    Column 0 belongs to the bottom vector, column j to the vector pushed at step j (counted from 1). For each t the
    weights sum to 1 over r, y and j. Arguments, rules and errors as in `nondeterministic_stack`.

    Cost: n³/6 · (Q³S + 3Q²S) multiply-adds, n² · (Q²S + QS) numbers kept.
    """
    readings, _ = _readings(push, replace, pop, None, None, lengths, window, implementation)
    return _rounded(readings, push)


def nondeterministic_stack_log_weight(
    push: Push,
    replace: Push,
    pop: Pop,
    *,
    lengths: Lengths = None,
    window: int | None = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch time"]:
    """Return the log of the total weight of all runs up to and including each step.

    -inf from the first step at which nothing is allowed; zeros past the length. Its gradient at the last step is the
    posterior of each transition (`nondeterministic_stack_posteriors`). Arguments and errors as in
    `nondeterministic_stack`.
    """
    return _rounded(_log_weight(push, replace, pop, lengths, window, implementation), push)


def nondeterministic_stack_posteriors(
    push: Push,
    replace: Push,
    pop: Pop,
    *,
    lengths: Lengths = None,
    window: int | None = None,
    implementation: Implementation = "auto",
) -> tuple[Push, Push, Pop]:
    """Return the posterior probability of each transition at each step, over complete runs weighted by ψ.

    Shaped like the logits. At each step they sum to 1 over all transitions; all are zero if no complete run exists. Not
    differentiable, except in forward mode. Arguments and errors as in `nondeterministic_stack`; `torch.export` raises
    NotImplementedError.
    """
    if torch.compiler.is_exporting():
        raise NotImplementedError("nondeterministic_stack_posteriors: torch.export is not supported")
    require_shape("push", push, (None,) * 6, "(B, T, Q, S, Q, S)")
    steps = checked_lengths(lengths, push.shape[0], push.shape[1], push.device)

    def whole(push: Tensor, replace: Tensor, pop: Tensor) -> tuple[Tensor, Tensor]:
        log_weight = _log_weight(push, replace, pop, lengths, window, implementation)
        last = torch.arange(push.shape[1], device=push.device) == steps[:, None] - 1
        alive = (last & (log_weight != -torch.inf)).any(1) | (steps == 0)
        return torch.where(last & log_weight.isfinite(), log_weight, torch.zeros_like(log_weight)).sum(), alive

    logits = [without_history(x) for x in (push, replace, pop)]
    with torch.enable_grad():
        gradients, alive = torch.func.grad(whole, argnums=(0, 1, 2), has_aux=True)(*logits)
    push_, replace_, pop_ = (
        torch.where(alive.view(-1, *[1] * (x.dim() - 1)), x, torch.zeros_like(x)) for x in gradients
    )
    return push_, replace_, pop_


def nondeterministic_stack_best_run(
    push: Push,
    replace: Push,
    pop: Pop,
    *,
    lengths: Lengths = None,
    window: int | None = None,
    implementation: Implementation = "auto",
) -> BestRun:
    """Return the run of highest weight of each sequence (the recurrences with max in place of the sum).

    ``states`` and ``symbols`` are those after each step; ``actions`` are values of `StackAction`. Among runs of
    equal weight the kernel takes push before replace before pop, then the lowest index. Not differentiable.
    With ``implementation="auto"``, tensors on a GPU are computed there, from short spans to long, and back-pointers
    followed on the CPU; among runs of equal weight another may be found. Arguments are those of
    ``nondeterministic_stack``.

    Returns:
        Actions, states, symbols, each (B, T), and the log-weight (B,): -inf where no run exists, 0 for a sequence of no
        steps, NaN where a logit is NaN or +inf.

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        ImplementationUnavailableError: the requested implementation cannot run here; "gpu" never can.
    """
    push, replace, pop = (without_history(x) for x in (push, replace, pop))
    arguments = checked_arguments(push, replace, pop, None, None, lengths, window)
    if chosen_implementation(_NAME, implementation, push.device) == "cpu":
        *run, log_weight = nondeterministic_stack_best_run_cpu(*arguments[:3], arguments.lengths, window)
    elif implementation == "auto" and push.is_cuda:
        *run, log_weight = best_run_by_spans(arguments.in_range())
    else:
        *run, log_weight = reference_best_run(arguments.in_range())
    return BestRun(*(x.to(push.device) for x in (*run, log_weight.to(push.dtype))))


def _rounded(x: Tensor, push: Tensor) -> Tensor:
    """Return a result in the dtype of the logits; under autocast in that of the computation."""
    return x if is_autocast(push.device) else x.to(push.dtype)


def _log_weight(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    lengths: Tensor | None,
    window: int | None,
    implementation: Implementation,
) -> Tensor:
    """Return the log-weights (B, T) in float32 or better: they may be beyond the range of float16."""
    nothing = push.new_zeros(*push.shape[:2], 0)
    return _readings(push, replace, pop, nothing, nothing.new_zeros(0), lengths, window, implementation)[1]


def _readings(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor | None,
    window: int | None,
    implementation: Implementation,
) -> tuple[Tensor, Tensor]:
    """Return readings and log-weights, in float32 or better."""
    arguments = checked_arguments(push, replace, pop, values, bottom, lengths, window)
    choice = chosen_implementation(_NAME, implementation, push.device, gpu_kernel=True)
    if choice == "cpu":
        return nondeterministic_stack_cpu(*arguments, False)[:2]
    if choice == "gpu":
        return readings_on_gpu(arguments.in_range(), tf32_allowed(push.device))
    return reference_readings(arguments.in_range())
