"""Protocols of attention layers: self-attention, cross-attention, and their incremental states."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.explanation import Explanation


@runtime_checkable
class AttentionState(Protocol):
    """Incremental state of a layer: an immutable value, through which gradients flow."""

    def select(self, indices: Int[Tensor, " chosen"]) -> "AttentionState":
        """Return the states of some members of the batch, in the given order, with repetitions: for beam search."""
        ...


@runtime_checkable
class AttentionLayer(Protocol):
    """A causal self-attention layer: position t attends to positions 1 to t.

    Padding is at the end. Positions at or past a sequence's length have no influence, whatever they hold, and their
    outputs are zeros.
    """

    def __call__(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences; without ``lengths`` there is no padding."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first step, with the device and dtype of the parameters."""
        ...

    def step(self, x_t: Float[Tensor, "batch d_model"], state: Any) -> tuple[Float[Tensor, "batch d_model"], Any]:
        """Process one position; return its output and the new state, and leave ``state`` unchanged."""
        ...

    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """Return the attention weights for ``x``, without gradients."""
        ...


@runtime_checkable
class AttendingLayer(AttentionLayer, Protocol):
    """An attention layer that returns its weights with its output, for losses that depend on them."""

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """Return the layer's output and the differentiable weights of the same pass.

        Weights of softmax attention are those before dropout. Those of hard attention are the sample in training and
        one-hot in evaluation.
        """
        ...


@runtime_checkable
class XavierInitialized(Protocol):
    """A layer whose matrices are initialised by Xavier's rule, even where other parameters are not."""

    def xavier_matrices(self) -> list[Tensor]:
        """Return the weight matrices (outputs, inputs), as views of the parameters."""
        ...


@runtime_checkable
class CrossAttentionLayer(Protocol):
    """A layer in which the positions of a sequence attend to another sequence, the memory.

    Each position attends to the whole memory and to no other position of its own sequence. Padding is at the end of
    both; its content has no influence and no gradient, and its outputs are zeros. An empty memory (S = 0 or length 0)
    contributes zeros, so that only a bias of the layer remains.
    """

    def __call__(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences; without ``lengths`` or ``memory_lengths`` there is no padding on that side."""
        ...

    def initial_state(
        self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Int[Tensor, " batch"] | None = None
    ) -> Any:
        """Project the memory once for all steps; gradients flow through the state."""
        ...

    def step(self, x_t: Float[Tensor, "batch d_model"], state: Any) -> tuple[Float[Tensor, "batch d_model"], Any]:
        """Process one position; return its output and the new state, and leave ``state`` unchanged."""
        ...

    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """Return the attention weights over the memory, without gradients."""
        ...
