"""State of a nondeterministic stack between two steps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(eq=False)
class NondeterministicStackState(ABC):
    """The stack after some steps: an immutable value, through which gradients flow.

    Attributes:
        reading: of the last step. Before the first it is the bottom vector for state 0 and symbol 0, and zeros.
    """

    reading: Float[Tensor, "batch state symbol vector"]

    @abstractmethod
    def select(self, indices: Int[Tensor, " chosen"]) -> "NondeterministicStackState":
        """Select and reorder members of the batch, with repetition. Cost: O(t²) copies."""

    @abstractmethod
    def detach(self) -> "NondeterministicStackState":
        """Return the same state without its gradient history."""

    @abstractmethod
    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "NondeterministicStackState":
        """Return the state after one more step; this one is unchanged.

        Args:
            logits: push and replace (B, Q, S, Q, S) and pop (B, Q, S, Q), float32 or float64.
            value: (B, m), of the same dtype.
        """
