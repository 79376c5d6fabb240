"""What a nondeterministic stack knows between two steps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(eq=False)
class NondeterministicStackState(ABC):
    """The stack after some steps: a value, whatever is done with it later, through which gradients flow.

    Attributes:
        reading: what the last step gave. Before the first it is the bottom vector for state 0 and symbol 0, and zeros.
    """

    reading: Float[Tensor, "batch state symbol vector"]

    @abstractmethod
    def select(self, indices: Int[Tensor, " chosen"]) -> "NondeterministicStackState":
        """The states of some members of the batch, in a new order, repeated at will. Cost: O(t²) copies."""

    @abstractmethod
    def detach(self) -> "NondeterministicStackState":
        """The same state, through which no gradient flows back."""

    @abstractmethod
    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "NondeterministicStackState":
        """The state after one more step; this one stays as it is.

        Args:
            logits: push and replace (B, Q, S, Q, S) and pop (B, Q, S, Q), float32 or float64.
            value: (B, m), of the same dtype.
        """
