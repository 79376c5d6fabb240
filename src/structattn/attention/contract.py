"""What every attention layer offers, within a sequence and across to another one, and what its state can do."""

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
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence; all T positions count where ``lengths`` is None."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first step, on the device and in the dtype of the parameters."""
        ...

    def step(self, x_t: Float[Tensor, "batch d_model"], state: Any) -> tuple[Float[Tensor, "batch d_model"], Any]:
        """One more position: its output, and the state after it. ``state`` stays as it is."""
        ...

    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """What the layer attends to when it is given ``x``; computed for the asking, without gradients."""
        ...

    def fully_connected(self) -> list[Tensor]:
        """The weight matrices (outputs, inputs) that take Xavier's initialisation, as views of the parameters.

        None for a layer that is initialised like everything else.
        """
        ...


@runtime_checkable
class WeighingLayer(AttentionLayer, Protocol):
    """An attention layer that can hand out the weights with which it read, for use in a training step."""

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """What the call of the layer gives, and the weights of the same pass, through which gradients flow.

        Softmax: as they are before dropout. Hard: the draw itself in training, one-hot in evaluation.
        """
        ...


@runtime_checkable
class CrossAttentionLayer(Protocol):
    """A learnable layer through which the positions of one sequence attend to another one, the memory.

    Every position sees the whole memory and nothing of its own sequence's other positions. Padding stands at the end of
    both: what stands there is neither read nor differentiated, and comes out as zeros. A position that finds no memory
    (S = 0, or a memory of length 0) reads zeros, so that nothing but a bias of the layer comes out.
    """

    def __call__(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence; all T positions count where ``lengths`` is None, all S where ``memory_lengths`` is."""
        ...

    def initial_state(
        self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Int[Tensor, " batch"] | None = None
    ) -> Any:
        """All that the steps need of the memory, computed once; gradients flow through it."""
        ...

    def step(self, x_t: Float[Tensor, "batch d_model"], state: Any) -> tuple[Float[Tensor, "batch d_model"], Any]:
        """One more position: its output, and the state after it. ``state`` stays as it is."""
        ...

    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """What of the memory the layer attends to; computed for the asking, without gradients."""
        ...

    def fully_connected(self) -> list[Tensor]:
        """As for an ``AttentionLayer``."""
        ...
