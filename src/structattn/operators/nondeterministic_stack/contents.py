"""What lies on a nondeterministic stack at each depth: DERIVATION.md, "Contents"."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_range
from structattn.operators.common.stack_contents import StackContents, checked_depths
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.block_contents import SequenceContents, block_contents
from structattn.operators.nondeterministic_stack.top_items import TopItems, defined_top_items

_ROWS = 128  # steps whose contents are computed together, by the definition


@torch.no_grad()
def nondeterministic_stack_contents(
    push: Float[Tensor, "batch time state symbol state symbol"],
    replace: Float[Tensor, "batch time state symbol state symbol"],
    pop: Float[Tensor, "batch time state symbol state"],
    depths: int = 10,
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    window: int | None = None,
    definition: bool = False,
) -> StackContents:
    """Return the exact distribution of the symbol and of the pushed vector at each depth of the stack after each step.

    The distribution is over all runs up to the step, weighted by ψ as in `nondeterministic_stack`. Depth 1 is the top;
    its positions are `nondeterministic_stack_weights`, summed over states and symbols. The bottom item counts, so the
    height is at least 1. Not differentiable.

    Args:
        push: log-weights, as for `nondeterministic_stack`.
        replace: as push.
        pop: as push.
        depths: D, the number of depths; the expected height counts all items.
        lengths: number of steps of each sequence; all T where None.
        window: as for `nondeterministic_stack`.
        definition: use the published recurrences in log space, whatever the range of the weights.

    Returns:
        The contents in float64, on the CPU; zeros past a sequence's length, and from a step on at which nothing is
        allowed.

    Raises:
        ValueError: shapes, dtypes, lengths, window or depths do not fit; a logit is NaN or +inf.

    Cost:
        n³/6 · Q²S · (QS + D) multiply-adds for each sequence, one after another, and n² · (Q²S + QS + D) numbers. A
        sequence whose weights may leave the range of doubles (DERIVATION.md, "Range") is computed by the published
        recurrences: n³/6 · Q³S² exponentials, D · n³/3 · Q²S² multiply-adds and n² · Q²S² numbers.
    """
    checked_depths(depths)
    arguments = checked_arguments(push, replace, pop, None, None, lengths, window)
    counts = checked_range(arguments.lengths, 0, push.shape[1], "lengths")
    batch, time, _, symbols = push.shape[:4]
    logits = [x.double().cpu() for x in arguments[:3]]
    zeros = logits[0].new_zeros
    found = StackContents(
        zeros(batch, time),
        zeros(batch, time, depths),
        zeros(batch, time, depths, time + 1),
        zeros(batch, time, depths, symbols),
    )
    for b, count in enumerate(counts.tolist()):
        of_sequence = logits[0][b, :count], logits[1][b, :count], logits[2][b, :count]
        if not all(bool((x < torch.inf).all()) for x in of_sequence):
            raise ValueError(f"sequence {b} has a logit that is NaN or +inf; expected numbers or -inf")
        known = None if definition else block_contents(*of_sequence, window, depths)
        if known is None:
            _write_defined(found, b, defined_top_items(*of_sequence, window))
        else:
            _write(found, b, known)
    return found


def _write(found: StackContents, b: int, contents: SequenceContents) -> None:
    assert found.symbols is not None
    end = len(contents.height)
    found.height[b, :end] = contents.height
    found.positions[b, :end, :, : end + 1] = contents.positions
    found.symbols[b, :end] = contents.symbols
    found.at_least[b, :end] = contents.symbols.sum(2)


def _write_defined(found: StackContents, b: int, items: TopItems) -> None:
    """Write the contents of one sequence: from depth d on lies the stack of an earlier time, and so on downwards."""
    end = items.num_steps
    heights = _heights(items)
    found.height[b, :end] = (items.shares[1:] * heights[1:]).sum(1)
    for start in range(0, end, _ROWS):
        stop = min(start + _ROWS, end)
        rows, times = torch.arange(start, stop), torch.arange(start + 1, stop + 1)
        stacks = items.shares.new_zeros(len(rows), stop + 1, items.shares.shape[1])  # whose top is at the depth
        stacks[rows - start, times] = items.shares[times]
        for depth in range(found.at_least.shape[2]):
            _write_depth(found, b, rows, depth, stacks)
            tops = items.of(stacks)
            found.positions[b, start:stop, depth, : stop + 1] = tops.sum(2)
            stacks = torch.cat([tops[:, 1:], torch.zeros_like(tops[:, :1])], 1)  # pushed at j on the stack of j - 1


def _write_depth(found: StackContents, b: int, rows: Tensor, depth: int, stacks: Tensor) -> None:
    assert found.symbols is not None
    found.at_least[b, rows, depth] = stacks.sum((1, 2))
    found.symbols[b, rows, depth] = stacks.view(len(rows), -1, found.symbols.shape[3]).sum(1)


def _heights(items: TopItems) -> Tensor:
    """Return the expected height given the configuration that ends each step, (n + 1, C)."""
    heights = torch.ones_like(items.shares)
    for t in range(1, items.num_steps + 1):
        below = torch.einsum("yqje,je->qy", items.tops[:, t, :, 1 : t + 1], heights[:t])
        heights[t] += below.flatten()
    return heights
