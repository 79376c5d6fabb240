"""The run of highest weight on a GPU: spans from short to long by operations of torch; back-pointers on the CPU.

In DERIVATION.md's "On a GPU", with max for the sum, sums for products and no scales: P[j,t] is the weight of the best
way of an item from time j to its pop at t, and w[k,t] that of a push after time k whose item is popped at t. A span is
some ten operations whatever the length, where the recurrence of the definition over times is a chain.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.nondeterministic_stack.arguments import Arguments
from structattn.operators.nondeterministic_stack.reference import StackAction


class BackPointers(NamedTuple):
    """Which alternative is the best, int32.

    Attributes:
        P: (B, n+1, n+1, Q, S, Q): configuration after a replacement; or C + (k - j - 2) Q + u, where an item is pushed
            after j and popped to state u at k.
        w: (B, n+1, n+1, Q, S, Q): configuration after the push.
        prefix: (B, n+1, Q, S): configuration before a push; C + that before a replacement; or 2C + k Q + u, where an
            item is pushed after k in state u and popped now.
    """

    P: Tensor
    w: Tensor
    prefix: Tensor


def best_run_by_spans(given: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return actions, states and symbols (B, T), int64 on the CPU, and log-weights (B,) in float64.

    Lengths are in range. Log-weights are -inf where there is no run, 0 for no steps, NaN where a logit is NaN or +inf;
    such sequences have zeros for runs. Among runs of equal weight, a replacement comes before a pop that uncovers the
    item.

    Cost: n³/6·Q³S maxima a sequence; 16 n²·Q²S bytes of weights, 8 n²·Q²S of back-pointers, which go to the CPU, and
    some 4 n²·Q³S of alternatives, of the spans of n/2.
    """
    B, T, _, S = given.push.shape[:4]
    lengths = given.lengths
    within, wrong = inside(lengths, T), torch.zeros_like(lengths, dtype=torch.bool)
    logits = []
    for x in given[:3]:
        refused = ~(x < torch.inf) & within.view(B, T, *[1] * (x.dim() - 2))
        wrong |= refused.flatten(1).any(1)
        logits.append(x.double().where(x < torch.inf, -torch.inf))
    weights, pointers = _prefixes(logits, *_spans(logits, T if given.window is None else given.window))
    last = weights[torch.arange(B, device=lengths.device), lengths].flatten(1)
    best, end = last.max(1)
    runs = torch.zeros(3, B, T, dtype=torch.int64, device="cpu")
    tables = BackPointers(*(x.cpu() for x in pointers))
    found = zip(lengths.tolist(), end.tolist(), (best.isfinite() & ~wrong).tolist(), strict=True)
    for b, (length, configuration, exists) in enumerate(found):
        if exists:
            steps = _walk(BackPointers(*(x[b] for x in tables)), length, divmod(configuration, S))
            runs[:, b, :length] = torch.tensor(steps, dtype=torch.int64, device="cpu").view(length, 3).T
    return *runs, best.masked_fill(wrong, torch.nan)


def _spans(logits: list[Tensor], window: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return w, and the back-pointers of P and w."""
    push, replace, pop = logits
    B, T, Q, S = push.shape[:4]
    P, w = (push.new_full((B, T + 1, T + 1, Q, S, Q), -torch.inf) for _ in range(2))
    pointers_P, pointers_w = (torch.zeros(P.shape, dtype=torch.int32, device=P.device) for _ in range(2))
    steps = torch.arange(max(T, 1), device=P.device)[1:]
    P[:, steps, steps + 1] = pop[:, 1:]  # the bottom item, of time 0, is never popped
    for span in range(2, min(T, window + 1) + 1):
        j = torch.arange(T - span + 1, device=P.device)
        shorter = P[:, j + 1, j + span].flatten(2, 3)[:, :, None, None]  # (B, J, 1, 1, QS, Q)
        w[:, j, j + span], pointers_w[:, j, j + span] = _best(push[:, j].flatten(4)[..., None] + shorter)
        stays = replace[:, j].flatten(4)[..., None] + shorter
        middle = j[:, None] + torch.arange(2, span, device=P.device)
        below = w[:, j[:, None], middle].permute(0, 1, 3, 4, 2, 5)[..., None]  # (B, J, Q, S, K, Q, 1)
        above = P[:, middle, (j + span)[:, None]].permute(0, 1, 4, 2, 3, 5)[:, :, None]  # (B, J, 1, S, K, Q, Q)
        P[:, j, j + span], pointers_P[:, j, j + span] = _best(torch.cat((stays, (below + above).flatten(4, 5)), 4))
        P[:, 0, span] = -torch.inf
        if span > window:
            P[:, j, j + span] = -torch.inf
    return w, pointers_P, pointers_w


def _best(alternatives: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maxima over the dimension before the last, and the first that have them."""
    best, index = alternatives.max(-2)
    return best, index.int()


def _prefixes(logits: list[Tensor], w: Tensor, pointers_P: Tensor, pointers_w: Tensor) -> tuple[Tensor, BackPointers]:
    """Return the weights of the best runs to each time and configuration, (B, T+1, Q, S), and all back-pointers."""
    push, replace, _ = logits
    B, T, Q, S = push.shape[:4]
    weights = push.new_full((B, T + 1, Q, S), -torch.inf)
    weights[:, 0, 0, 0] = 0
    pointers = torch.zeros(weights.shape, dtype=torch.int32, device=w.device)
    for t in range(1, T + 1):
        before = weights[:, t - 1].flatten(1)[..., None, None]
        moves = [before + x[:, t - 1].flatten(1, 2) for x in (push, replace)]  # (B, QS, Q, S)
        pops = weights[:, :t, ..., None] + w[:, :t, t]  # (B, k, u, y, r)
        alternatives = torch.cat((*moves, pops.transpose(3, 4).flatten(1, 2)), 1)
        weights[:, t], pointers[:, t] = alternatives.max(1)
    return weights, BackPointers(pointers_P, pointers_w, pointers)


def _walk(pointers: BackPointers, length: int, end: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Return action, state and symbol of each step of the best run of one sequence that ends in a configuration."""
    P, w, prefix = (x.numpy() for x in pointers)
    Q, S = prefix.shape[1:]
    run: list[tuple[int, int, int]] = [(0, 0, 0)] * length
    t, (state, symbol) = length, end
    while t > 0:
        kind, pointer = divmod(int(prefix[t, state, symbol]), Q * S)
        if kind < 2:
            run[t - 1] = (StackAction.PUSH if kind == 0 else StackAction.REPLACE, state, symbol)
            t, (state, symbol) = t - 1, divmod(pointer, S)
            continue
        k, u = divmod(int(prefix[t, state, symbol]) - 2 * Q * S, Q)
        _walk_item(P, w, run, (k, t, u, symbol, state))
        t, state = k, u
    return run


def _walk_item(
    P: np.ndarray, w: np.ndarray, run: list[tuple[int, int, int]], item: tuple[int, int, int, int, int]
) -> None:
    """Write the steps from the push of an item to its pop: after time k, at t, from (u, y), to state r."""
    Q, S = P.shape[2:4]
    spans = [(True, *item, -1)]  # whether the push itself is to come, and the symbol below the item
    while spans:
        opens, j, t, state, symbol, r, below = spans.pop()
        pointer = int((w if opens else P)[j, t, state, symbol, r])
        if opens:
            run[j] = (StackAction.PUSH, *divmod(pointer, S))
            spans.append((False, j + 1, t, *run[j][1:], r, symbol))
        elif t == j + 1:
            run[j] = (StackAction.POP, r, below)
        elif pointer < Q * S:
            run[j] = (StackAction.REPLACE, *divmod(pointer, S))
            spans.append((False, j + 1, t, *run[j][1:], r, below))
        else:
            k, u = divmod(pointer - Q * S, Q)
            k += j + 2
            spans += (False, k, t, u, symbol, r, below), (True, j, k, state, symbol, u, -1)
