"""The definition: the recurrences of DuSell & Chiang (2024), Appendix B, in log space, step by step.

Legend: B batch, n length, Q states, S stack symbols, m the size of a vector. ``gamma[i -> t][q, x -> r, y]`` is the
    weight of going from state q with x on top at time i to state r with y on top at time t, where x stays untouched and
    y is what was pushed right above it; ``zeta`` is the same with every run weighted by its top vector. A table here
    holds both: entry 0 of the last axis is gamma, the others are zeta (gamma is zeta for vectors that are 1).
    ``alpha[t][r, y]`` is the weight of all runs that end at time t in r with y on top, ``eta`` the same weighted by the
    top vector; they share a table too. Time -1 is the fictitious moment that pushes the bottom item. Everything is a
    logarithm.

The column of time t holds gamma and zeta of all i -> t, i = -3 .. t-1. Nothing starts at times -3 and -2; they are
there so that no sum is empty and, for torch's tracers, no size is 1. So are columns of times -2 and -1, which hold
nothing.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from structattn.operators.common.checks import checked_false, inside
from structattn.operators.common.differentiation import in_forward_mode, transforms_active
from structattn.operators.nondeterministic_stack.arguments import Arguments

Sum = Callable[[Tensor, tuple[int, ...]], Tensor]


class StackAction(IntEnum):
    """The kinds of transition of the automaton, with the values that `nondeterministic_stack_best_run` returns."""

    PUSH = 0
    REPLACE = 1
    POP = 2


def log_sum(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return log Σ exp over ``dims``; a sum whose terms are all -inf is -inf and has gradient zero."""
    top = x.detach().amax(dims, keepdim=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    total = (x - top).exp().sum(dims, keepdim=True)
    empty = total == 0
    result = torch.where(empty, torch.ones_like(total), total).log() + top
    return torch.where(empty, torch.full_like(result, -torch.inf), result).squeeze(dims)


def largest(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the maximum over ``dims``, the sum of the (max, +) semiring; one maximal element gets the gradient."""
    kept = [d for d in range(x.dim()) if d not in dims]
    return x.permute(*kept, *dims).flatten(len(kept)).max(-1).values


def lengthened(x: Tensor, rows: int) -> Tensor:
    """Return ``x`` with as many rows, the second axis; new ones are -inf."""
    return torch.cat([x, x.new_full((x.shape[0], rows - x.shape[1], *x.shape[2:]), -torch.inf)], 1)


def side_by_side(columns: Sequence[Tensor], rows: int) -> Tensor:
    """Stack columns of times k to (B, i, k, Q, S, Q, S, 1+m), with ``rows`` of i = -3 ..; -inf from i = k on."""
    return torch.stack([lengthened(column, rows) for column in columns], 2)


def first_columns(bottom: Tensor, states: int, symbols: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the columns of times -2 .. 0, and alpha[-3 .. 0], each (B, Q, S); ``bottom`` (B, 1+m) is a logarithm."""
    nothing = bottom.new_full((bottom.shape[0], states, symbols), -torch.inf)
    start = nothing.clone()
    start[:, 0, 0] = 0.0
    pushed = start[:, :, :, None, None, None] + start[:, None, None, :, :, None] + bottom[:, None, None, None, None]
    empty = torch.full_like(pushed, -torch.inf)
    columns = [empty[:, None], torch.stack([empty, empty], 1), torch.stack([empty, empty, pushed], 1)]
    return columns, [nothing, nothing, start, start]


def reached_by_pop(sum_: Sum, past: Tensor, last: Tensor, pop: Tensor, window: int | None) -> Tensor:
    """Return the third term of (24) and (26), with (25); over i = -3 .. t-2, shape (B, t+2, Q, S, Q, S, 1+m).

    ``past`` holds the columns of times k = -2 .. t-2 side by side, ``last`` is that of t-1. The top of time k was left
    when time k+1 pushed on it, and a pop at t undoes that push where t - (k+1) <= ``window``. The bottom, pushed at
    time 0 by k = -1, is never popped.
    """
    popped = sum_(
        last[:, 1:, ..., :1] + pop[:, None, None, None],  # (b k u y s z 1) + (b 1 1 1 s z r)
        (4, 5),
    )
    t = popped.shape[1] - 1
    pushed_at = torch.arange(-1, t, device=pop.device)  # k + 1
    allowed = pushed_at >= 1 if window is None else (pushed_at >= 1) & (t - pushed_at <= window)
    popped = torch.where(allowed[:, None, None, None], popped, torch.full_like(popped, -torch.inf))
    terms = past[..., None, :] + popped[:, None, :, None, None, ..., None]  # (b i k q x u y 1 m) + (b 1 k 1 1 u y r 1)
    return sum_(terms, (2, 5)).transpose(4, 5)


def next_column(sum_: Sum, last: Tensor, popped: Tensor, push: Tensor, replace: Tensor, value: Tensor) -> Tensor:
    """Compute (24) and (26) at t, with third term ``popped``; over i = -3 .. t-1, (B, t+3, Q, S, Q, S, 1+m)."""
    # (b i q x s z 1 1 m) + (b 1 1 1 s z r y 1)
    replaced = sum_(last[..., None, None, :] + replace[:, None, None, None, ..., None], (4, 5))
    pushed = push[..., None] + value[:, None, None, None, None]
    return torch.cat([sum_(torch.stack([replaced, popped]), (0,)), pushed[:, None]], 1)


def prefixes(sum_: Sum, alphas: Tensor, column: Tensor) -> Tensor:
    """Compute (27) and (28): alpha and eta at time t, (B, Q, S, 1+m), from alpha[-3 .. t-1] and column t."""
    return sum_(alphas[..., None, None, None] + column, (1, 2, 3))


def _recomputed(third_term: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call the function; its terms, which fill most of the memory, are recomputed in the backward pass.

    Not within the transforms of ``torch.func`` and in forward mode, which checkpoints do not support.
    """
    if not torch.compiler.is_dynamo_compiling() and (transforms_active() or in_forward_mode()):
        return third_term(*inputs)
    result: Tensor = checkpoint(third_term, *inputs, use_reentrant=False)
    return result


def _all_prefixes(
    sum_: Sum, push: Tensor, replace: Tensor, pop: Tensor, values: Tensor, bottom: Tensor, window: int | None
) -> Tensor:
    """Return alpha and eta at times 1 .. n, shape (B, n, Q, S, 1+m); ``values``, ``bottom`` are logarithms."""
    one = values.new_zeros(*values.shape[:2], 1)
    values, bottom = torch.cat([one, values], -1), torch.cat([one[:, 0], bottom], -1)
    columns, alphas = first_columns(bottom, *push.shape[2:4])

    def third_term(pop: Tensor, *columns: Tensor) -> Tensor:
        *past, last = columns
        return reached_by_pop(sum_, side_by_side(past, last.shape[1]), last, pop, window)

    totals = []
    for t in range(push.shape[1]):
        popped = _recomputed(third_term, pop[:, t], *columns)
        columns.append(next_column(sum_, columns[-1], popped, push[:, t], replace[:, t], values[:, t]))
        totals.append(prefixes(sum_, torch.stack(alphas, 1), columns[-1]))
        alphas.append(totals[-1][..., 0])
    return torch.stack(totals, 1)


def share_of_all(totals: Tensor) -> tuple[Tensor, Tensor]:
    """Divide alpha and eta, (..., Q, S, 1+m), by the weight of all runs (29); also return that weight's logarithm.

    Zeros where there is no run.
    """
    log_weight = log_sum(totals[..., 0], (-2, -1))
    limit = 2.0**-6 / torch.finfo(log_weight.dtype).eps
    message = (
        f"nondeterministic_stack: the definition's log-weights exceed {limit:.0e} in magnitude, its limit in "
        f"{log_weight.dtype}; scale the logits down, or use implementation='cpu'"
    )
    too_large = log_weight.isfinite() & (log_weight.abs() > limit)
    weight = torch.where(checked_false(too_large, message), log_weight, torch.nan)
    dead = weight == -torch.inf
    share = (totals - torch.where(dead, torch.zeros_like(weight), weight)[..., None, None, None]).exp()
    return torch.where(dead[..., None, None, None], torch.zeros_like(share), share), weight


def readings_and_log_weight(
    push: Tensor, replace: Tensor, pop: Tensor, values: Tensor, bottom: Tensor, window: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the readings (29), (B,n,Q,S,m), and the log-weight of all runs up to each step, (B,n).

    The published semiring needs positive vectors. A reading is linear in the vectors, and for vectors of ones it is the
    share of alpha, so a constant is added to all vectors, and its share subtracted from the reading.

    Cost: n³·Q³S²·(1+m) in time, n²·Q²S²·(1+m) in memory.
    """
    lowest = torch.minimum(values.detach().nan_to_num().amin(1), bottom.detach().nan_to_num()) - 1
    totals = _all_prefixes(
        log_sum, push, replace, pop, (values - lowest[:, None]).log(), (bottom - lowest).log(), window
    )
    share, weight = share_of_all(totals)
    return share[..., 1:] + share[..., :1] * lowest[:, None, None, None], weight


def best_log_weight(push: Tensor, replace: Tensor, pop: Tensor, window: int | None = None) -> Tensor:
    """Return the log-weight of the best run up to each step, (B,n); its gradient marks the run's transitions."""
    nothing = push.new_zeros(*push.shape[:2], 0)
    return _all_prefixes(largest, push, replace, pop, nothing, nothing[:, 0], window)[..., 0].flatten(2).max(-1).values


def reference_readings(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return readings and log-weights of a padded batch, by the definition; zeros past the lengths."""
    push, replace, pop, values, bottom, lengths, window = arguments
    B, T, Q, S = push.shape[:4]
    if values is None or bottom is None:
        identity = torch.eye(T + 1, dtype=push.dtype, device=push.device)
        values, bottom = identity[1:].expand(B, T, T + 1), identity[0]
    within = inside(lengths, T)
    if T == 0 or B == 0:
        nothing = push.sum()  # 0, but with the inputs behind it for autograd
        return nothing.expand(B, T, Q, S, values.shape[2]), nothing.expand(B, T)

    def masked(x: Tensor) -> Tensor:
        return torch.where(within.view(B, T, *[1] * (x.dim() - 2)), x, torch.zeros_like(x))

    readings, log_weight = readings_and_log_weight(
        masked(push), masked(replace), masked(pop), masked(values), bottom.expand(B, -1), window
    )
    readings = torch.where(within.view(B, T, 1, 1, 1), readings, torch.zeros_like(readings))
    return readings, torch.where(within, log_weight, torch.zeros_like(log_weight))


def reference_best_run(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Derive the run from the gradient of its log-weight, which is 1 at its transitions and 0 elsewhere."""
    lengths = arguments.lengths
    B, T, _, S = arguments.push.shape[:4]
    actions, states, symbols = (torch.zeros(B, T, dtype=torch.int64, device=lengths.device) for _ in range(3))
    weights = arguments.push.new_zeros(B)
    for b, n in enumerate(lengths.tolist()):
        if n == 0:
            continue
        with torch.inference_mode(False), torch.enable_grad():
            logits = [x[b : b + 1, :n].clone().requires_grad_() for x in arguments[:3]]
            weight = best_log_weight(logits[0], logits[1], logits[2], arguments.window)[0, -1]
            marks = torch.autograd.grad(weight, logits, materialize_grads=True)
        weights[b] = weight.detach()
        if weight == -torch.inf:
            continue
        kinds = torch.stack([mark.flatten(2).sum(-1) for mark in marks], -1)
        actions[b, :n] = kinds[0].argmax(-1)
        moved = (marks[0] + marks[1]).sum((2, 3)).flatten(2).argmax(-1)[0]
        popped_to = marks[2].sum((2, 3))[0].argmax(-1)
        states[b, :n], symbols[b, :n] = _followed(actions[b, :n], moved, popped_to, S)
    return actions, states, symbols, weights


def _followed(actions: Tensor, moved: Tensor, popped_to: Tensor, symbols: int) -> tuple[Tensor, Tensor]:
    """Return states and top symbols of one run, by applying its actions to a stack of symbols."""
    stack, states, tops = [0], [], []
    for action, configuration, state in zip(actions.tolist(), moved.tolist(), popped_to.tolist(), strict=True):
        if action == StackAction.POP:
            stack.pop()
        elif action == StackAction.PUSH:
            stack.append(configuration % symbols)
        else:
            stack[-1] = configuration % symbols
        states.append(state if action == StackAction.POP else configuration // symbols)
        tops.append(stack[-1])
    return torch.tensor(states, device="cpu"), torch.tensor(tops, device="cpu")
