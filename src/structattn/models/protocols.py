"""What models offer to losses, decoders and analyses, whatever they are made of."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from structattn.attention import Explanation
from structattn.support.shapes import Float, Int, Lengths


@runtime_checkable
class CausalModel(Protocol):
    """A left-to-right language model, recurrent or not."""

    def __call__(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time classes"]:
        """Return the logits of the token after each position; class c stands for id c + 2."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first token, with a method ``select`` to reorder the batch."""
        ...

    def step(self, tokens: Int[Tensor, " batch"], state: Any) -> tuple[Float[Tensor, "batch classes"], Any]:
        """Process one more token of each sequence; return the logits of the next and the new state."""
        ...

    def explain(self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None) -> list[Explanation]:
        """Return the attention weights of each layer, without gradients."""
        ...


@runtime_checkable
class AttendingModel(Protocol):
    """A model that returns its attention weights with its logits, so that a loss can depend on both."""

    def attend(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> tuple[Float[Tensor, "batch time classes"], list[Float[Tensor, "batch heads time time"] | None]]:
        """Return the logits and each layer's differentiable weights, None for a layer that has none."""
        ...
