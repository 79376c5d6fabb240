"""What a layer attended to."""

from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float
from torch import Tensor

Sublayer = Literal["attention", "cross", "stack"]


@dataclass(frozen=True)
class Explanation:
    """The record that ``explain`` returns; B batch, T positions, S sources. Positions past the length hold zeros.

    Args:
        mechanism: which layer it comes from.
        weights: how much each position takes from each source. gaussian: the hard-coded heads stand before the learned
            ones, and their weights need not sum to 1.
        first_source: 0 where column j of the weights is position j; 1 where column 0 is the bottom vector of a stack
            and column j is position j - 1.
        details: what the mechanism has besides. hard: "probabilities" (B, T, H, S), the softmax of the scores, of which
            the weights mark the largest. superposition, stack_pointer: "actions" (B, T, 3), the probabilities of push,
            no-op, pop. stratified: "actions" (B, T, 2), the strengths of push and pop. nondeterministic: "actions"
            (B, T, 3), the posteriors of push, replace, pop; "best_run" (B, T, 3), the heaviest run's action (numbered
            as ``StackAction``), state and symbol.
        sublayer: which part of a model's layer it is; the model fills it in.
        layer: that layer's number, from 0; the model fills it in.
    """

    mechanism: Literal[
        "gaussian", "hard", "softmax", "superposition", "nondeterministic", "stack_pointer", "stratified"
    ]
    weights: Float[Tensor, "batch heads time source"]
    first_source: Literal[0, 1] = 0
    details: dict[str, Tensor] = field(default_factory=dict)
    sublayer: Sublayer = "attention"
    layer: int = 0
