"""Several stacks of a layer side by side: members of a batch, for one call of an operator."""

from collections.abc import Callable

from torch import Tensor

from structattn.operators.common.checks import mask_padding
from structattn.operators.common.stack_contents import StackContents
from structattn.operators.superposition_stack.reference import superposition_stack_contents
from structattn.support.shapes import Float, Int, Lengths


def fold(x: Float[Tensor, "batch time size"], num_heads: int) -> Float[Tensor, "stacks time part"]:
    """Return the H equal parts of the last axis as sequences of their own, those of a sequence after each other."""
    return x if num_heads == 1 else _parts(x, num_heads).transpose(1, 2).flatten(0, 1)


def unfold(x: Float[Tensor, "stacks time part"], num_heads: int) -> Float[Tensor, "batch time size"]:
    """Undo ``fold``."""
    return x if num_heads == 1 else _together(x, num_heads).transpose(1, 2).flatten(2)


def fold_lengths(lengths: Lengths, num_heads: int) -> Int[Tensor, " stacks"] | None:
    """Return the length of each of the folded sequences."""
    return lengths if lengths is None or num_heads == 1 else lengths.repeat_interleave(num_heads)


def explain_stacks(
    weights_of: Callable[..., Tensor], actions: Float[Tensor, "batch time actions"], lengths: Lengths, num_heads: int
) -> tuple[Float[Tensor, "batch heads time source"], dict[str, Tensor], Callable[[int], StackContents]]:
    """Return weights, details and contents of an ``Explanation`` of stacks with push, no-op and pop.

    ``actions`` are probabilities, three for each stack.
    """
    folded, ends = fold(actions, num_heads), fold_lengths(lengths, num_heads)
    weights, shown = _together(weights_of(folded, lengths=ends), num_heads), mask_padding(actions, lengths)
    details = {"actions": shown if num_heads == 1 else _parts(shown, num_heads)}

    def contents(depths: int) -> StackContents:
        return superposition_stack_contents(folded, depths, lengths=ends).of_stacks(num_heads)

    return weights, details, contents


def _parts(x: Tensor, num_heads: int) -> Float[Tensor, "batch time heads part"]:
    return x.view(*x.shape[:2], num_heads, x.shape[2] // num_heads)


def _together(x: Tensor, num_heads: int) -> Float[Tensor, "batch heads time part"]:
    return x.view(x.shape[0] // num_heads, num_heads, *x.shape[1:])
