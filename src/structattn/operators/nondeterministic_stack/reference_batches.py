"""Applies the definition to padded batches, by the operators' rules for lengths."""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.nondeterministic_stack import reference
from structattn.operators.nondeterministic_stack.actions import StackAction
from structattn.operators.nondeterministic_stack.arguments import Arguments


def reference_readings(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Readings and log-weights of a padded batch, by the definition; zeros past the ends."""
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

    readings, log_weight = reference.readings_and_log_weight(
        masked(push), masked(replace), masked(pop), masked(values), bottom.expand(B, -1), window
    )
    readings = torch.where(within.view(B, T, 1, 1, 1), readings, torch.zeros_like(readings))
    return readings, torch.where(within, log_weight, torch.zeros_like(log_weight))


def reference_best_run(arguments: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Reads the run off the gradient of its log-weight, which is 1 at its transitions and 0 elsewhere."""
    lengths = arguments.lengths
    B, T, _, S = arguments.push.shape[:4]
    actions, states, symbols = (torch.zeros(B, T, dtype=torch.int64, device=lengths.device) for _ in range(3))
    weights = arguments.push.new_zeros(B)
    for b, n in enumerate(lengths.tolist()):
        if n == 0:
            continue
        logits = [x[b : b + 1, :n].clone().requires_grad_() for x in arguments[:3]]
        with torch.enable_grad():
            weight = reference.best_log_weight(logits[0], logits[1], logits[2], arguments.window)[0, -1]
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
    """States and top symbols of one run, by doing what its actions say to a stack of symbols."""
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
    return torch.tensor(states), torch.tensor(tops)
