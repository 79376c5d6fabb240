"""What every attention layer offers, and what its state can do."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.explanation import Explanation


@runtime_checkable
class AttentionState(Protocol):
    """All that a layer must know of the steps so far: a value, never mutated, through which gradients flow."""

    def select(self, indices: Int[Tensor, " chosen"]) -> "AttentionState":
        """The states of some members of the batch, in a new order, repeated at will: what a beam search needs."""
        ...


@runtime_checkable
class AttentionLayer(Protocol):
    """A learnable layer from vectors to vectors of the same width, causal, with two doors and one window.

    Through both doors position t sees positions 1 to t, itself included. Padding stands at the end: positions at or
    past a sequence's length neither give nor take anything, whatever they hold, and come out as zeros.
    """

    def __call__(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """A whole sequence; all T positions count where ``lengths`` is None."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first step, on the device and in the dtype of the parameters."""
        ...

    def step(self, x_t: Float[Tensor, "batch width"], state: Any) -> tuple[Float[Tensor, "batch width"], Any]:
        """One more position: its output, and the state after it. ``state`` stays as it is."""
        ...

    def explain(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """What the layer attends to when it is given ``x``; computed for the asking, without gradients."""
        ...

    def fully_connected(self) -> list[Tensor]:
        """The weight matrices (outputs, inputs) that take Xavier's initialisation, as views of the parameters.

        None for a layer that is initialised like everything else.
        """
        ...
