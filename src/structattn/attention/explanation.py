"""The record of a layer's attention weights."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from structattn.operators.common.stack_contents import StackContents

Sublayer = Literal["attention", "cross", "stack"]


@dataclass(frozen=True)
class Explanation:
    """What ``explain`` returns, with B sequences, T positions and S sources. Positions past the length hold zeros.

    Args:
        mechanism: the kind of layer.
        weights: of each source for each position. In Gaussian attention hard-coded heads come before learned ones, and
            their weights need not sum to 1.
        first_source: 0 if column j of the weights is position j; 1 if column 0 is the bottom vector of a stack and
            column j is position j - 1.
        details: further tensors of the mechanism. hard: "probabilities" (B, T, H, S), the softmax of the scores, of
            which the weights mark the largest. superposition, stack_pointer: "actions" (B, T, 3), the probabilities of
            push, no-op, pop. stratified: "actions" (B, T, 2), the strengths of push and pop. nondeterministic:
            "actions" (B, T, 3), the posteriors of push, replace, pop; "best_run" (B, T, 3), action (a
            ``StackAction``), state and symbol of the run with the largest weight.
        sublayer: the kind of the sublayer in its block, set by the model.
        layer: the index of the block, from 0, set by the model.
        contents: of a stack, returns what lies at the first depths from the top, with the columns of the weights as
            sources; None for other mechanisms. It is computed at each call, in O(T^3).
    """

    mechanism: str
    weights: Float[Tensor, "batch heads time source"]
    first_source: Literal[0, 1] = 0
    details: dict[str, Tensor] = field(default_factory=dict)
    sublayer: Sublayer = "attention"
    layer: int = 0
    contents: Callable[[int], StackContents] | None = None
