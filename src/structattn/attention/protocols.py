"""The interface of attention layers, and the record of a layer's attention weights."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from structattn.operators.common.stack_contents import StackContents
from structattn.support.shapes import Float, Int, Lengths

Sublayer = Literal["attention", "cross", "stack"]


class Streams(NamedTuple):
    """Hidden states of two streams over the same positions, with equal shapes.

    Args:
        syntactic: g, from which the attention scores are computed.
        semantic: h, the content.
    """

    syntactic: Float[Tensor, "*batch d_model"]
    semantic: Float[Tensor, "*batch d_model"]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Streams":
        """Apply a function to each stream."""
        return Streams(function(self.syntactic), function(self.semantic))


@dataclass(frozen=True)
class Explanation:
    """What ``explain`` returns, with B sequences, T positions and S sources. Positions past the length hold zeros.

    Args:
        mechanism: the kind of layer.
        weights: of each source for each position. In Gaussian attention hard-coded heads come before learned ones, and
            their weights need not sum to 1.
        first_source: 0 if column j of the weights is position j; 1 if column 0 is the bottom vector of a stack, or
            the null cell of StackTrans, and column j is position j - 1.
        details: further tensors (B, T, ...) of the mechanism, which a ``Record`` keeps. hard: "probabilities" (B, T, H,
            S), the softmax of the scores, of which the weights mark the largest. superposition, stack_pointer,
            stack_trans: "actions" (B, T, 3), the probabilities of push, no-op, pop, of several stacks (B, T, H, 3).
            stratified: "actions" (B, T, 2), the strengths of push and pop. nondeterministic: "actions" (B, T, 3), the
            posteriors of push, replace, pop; "best_run" (B, T, 3), action (a ``StackAction``), state and symbol of the
            run with the largest weight; both given the whole sequence. What the layer read at a step depends on the
            runs so far: "prefix_actions" (B, T, 3), the posteriors at the step given the steps up to it, which compare
            with "actions" of other stacks; "prefix_tops" (B, T, 2), the state and the symbol on top that are then most
            probable.
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

    def __repr__(self) -> str:
        tensors = {"weights": self.weights, **self.details}
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        return f"Explanation({self.mechanism!r}, {self.sublayer} of layer {self.layer}: {shapes})"


@runtime_checkable
class AttentionState(Protocol):
    """Incremental state of a layer: an immutable value, through which gradients flow."""

    def select(self, indices: Int[Tensor, " chosen"]) -> "AttentionState":
        """Return the states of some members of the batch, in the given order, with repetitions: for beam search."""
        ...


@runtime_checkable
class AttentionLayer(Protocol):
    """A causal self-attention layer: position t attends to positions 1 to t.

    Padding is at the end. Positions at or past a sequence's length have no influence, whatever they hold, NaN included;
    their outputs and gradients are zeros. An empty batch (B = 0) and sequences without positions (T = 0 or length 0)
    give outputs of the shape of x, with finite gradients.
    """

    def __call__(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences; without ``lengths`` there is no padding."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first step, with the device and dtype of the parameters."""
        ...

    def step(self, x_t: Float[Tensor, "batch d_model"], state: Any) -> tuple[Float[Tensor, "batch d_model"], Any]:
        """Process one position; return its output and the new state, and leave ``state`` unchanged.

        The new state shares no memory with ``x_t`` and the output, which callers may change in place.
        """
        ...

    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the attention weights for ``x``, without gradients.

        Weights and details are zeros at padding. The record has the name of the ``Mechanism``, and its ``details`` have
        "actions", (B, T, A) or of several stacks (B, T, H, A), if and only if the ``Mechanism`` names A ``actions``.
        """
        ...


@runtime_checkable
class AttendingLayer(AttentionLayer, Protocol):
    """An attention layer that returns its weights with its output, for losses that depend on them."""

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """Return the layer's output and the differentiable weights of the same pass.

        Weights of softmax attention are those before dropout. Those of hard attention are the sample in training and
        one-hot in evaluation.
        """
        ...


@runtime_checkable
class XavierInitialized(Protocol):
    """A layer whose matrices are initialised by Xavier's rule, even where other parameters are not.

    Where it replaces self-attention, so are the feed-forward maps of its block. The stacks of this package have it, and
    what is compared with them needs it.
    """

    def xavier_matrices(self) -> list[Tensor]:
        """Return the weight matrices (outputs, inputs), as views of the parameters."""
        ...


@runtime_checkable
class SelfInitialized(Protocol):
    """A layer with parameters that no rule for linear maps, embeddings and norms fits.

    A layer of a plugin needs it only for numbers in layers of torch.nn, which the rule of the model draws: parameters
    of its own keep what the constructor gave them.
    """

    def initialize_own(self) -> None:
        """Set these parameters, or draw them from torch's global generator; the others stay.

        It is called after the rule of the model. The constructor calls it, too.
        """
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
        lengths: Lengths = None,
        memory_lengths: Lengths = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences; without ``lengths`` or ``memory_lengths`` there is no padding on that side."""
        ...

    def initial_state(self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Lengths = None) -> Any:
        """Project the memory once for all steps; gradients flow through the state."""
        ...

    def step(self, x_t: Float[Tensor, "batch d_model"], state: Any) -> tuple[Float[Tensor, "batch d_model"], Any]:
        """Process one position; return its output and the new state, and leave ``state`` unchanged."""
        ...

    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Lengths = None,
        memory_lengths: Lengths = None,
    ) -> Explanation:
        """Return the attention weights over the memory, without gradients."""
        ...
