"""Explanation of the stack of a recurrent network."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.operators import (
    RecurrentStack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
    stratified_stack_weights,
    superposition_stack_weights,
)
from structattn.operators.common.checks import mask_padding
from structattn.operators.common.stack_contents import StackContents
from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_contents
from structattn.operators.stratified_stack.contents import stratified_stack_contents
from structattn.operators.superposition_stack import superposition_step
from structattn.operators.superposition_stack.contents import superposition_stack_contents


def explain_stack(stack: RecurrentStack, actions: Tensor, lengths: Tensor | None, num_skipped: int) -> Explanation:
    """Return the weights of the pushed vectors in each reading, and the actions.

    Args:
        stack: kind and sizes of the stack.
        actions: action logits of the network, (B, T, A).
        lengths: number of steps per sequence; None: no padding.
        num_skipped: number of positions before the first step, which get zeros.
    """
    match stack.name:
        case "superposition":
            strengths = mask_padding(torch.softmax(actions, -1), lengths)
            weights, details = _superposition_weights(strengths, lengths, stack.depth), {"actions": strengths}
            contents = partial(superposition_stack_contents, strengths, lengths=lengths, limit=stack.depth)
        case "stratified":
            strengths = mask_padding(torch.sigmoid(actions), lengths)
            weights, details = stratified_stack_weights(strengths, lengths=lengths), {"actions": strengths}
            contents = partial(stratified_stack_contents, strengths, lengths=lengths)
        case "nondeterministic":
            transitions = stack.transitions(mask_padding(actions, lengths))
            weights, details = _runs(stack, transitions, lengths)
            contents = partial(nondeterministic_stack_contents, *transitions, lengths=lengths, window=stack.window)
    bottom = int(stack.name == "nondeterministic")
    weights = F.pad(weights, (0, 0, num_skipped, 0))
    weights = torch.cat([weights[..., :bottom], F.pad(weights[..., bottom:], (num_skipped, 0))], -1)
    details = {name: F.pad(detail, (0, 0, num_skipped, 0)) for name, detail in details.items()}
    return Explanation(
        stack.name,
        weights[:, None],
        first_source=1 if bottom else 0,
        details=details,
        sublayer="stack",
        contents=partial(_later_contents, contents, bool(bottom), num_skipped),
    )


def _later_contents(
    contents: Callable[[int], StackContents], bottom: bool, num_skipped: int, depths: int
) -> StackContents:
    """Return the contents with zeros for the positions before the first step."""
    found = contents(depths).after(num_skipped)
    return found if bottom else found.without_bottom()


def _superposition_weights(actions: Tensor, lengths: Tensor | None, depth: int | None) -> Tensor:
    """Weights of the pushed vectors: the readings of a stack onto which step j pushes the j-th unit vector."""
    if depth is None:
        return superposition_stack_weights(actions, lengths=lengths)
    units = torch.eye(actions.shape[1], dtype=actions.dtype, device=actions.device)
    rows, readings = actions.new_zeros(len(actions), 0, len(units)), [actions.new_zeros(len(actions), 0, len(units))]
    for action, unit in zip(actions.unbind(1), units, strict=True):
        rows = superposition_step(rows, action, unit.expand(len(actions), -1), depth)
        readings.append(rows[:, :1])
    return mask_padding(torch.cat(readings, 1), lengths)


def _runs(
    stack: RecurrentStack, transitions: tuple[Tensor, Tensor, Tensor], lengths: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weights over positions, posteriors of the actions, and the run with the largest weight."""
    weights = nondeterministic_stack_weights(*transitions, lengths=lengths, window=stack.window).sum((2, 3))
    posteriors = nondeterministic_stack_posteriors(*transitions, lengths=lengths, window=stack.window)
    run = nondeterministic_stack_best_run(*transitions, lengths=lengths, window=stack.window)
    return weights, {
        "actions": torch.stack([posterior.flatten(2).sum(-1) for posterior in posteriors], dim=-1),
        "best_run": torch.stack([run.actions, run.states, run.symbols], dim=-1),
    }
