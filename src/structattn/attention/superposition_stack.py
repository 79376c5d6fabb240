"""Superposition stack attention."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.projections import Projection
from structattn.attention.protocols import Explanation
from structattn.operators import superposition_stack, superposition_stack_weights
from structattn.operators.common.checks import mask_padding
from structattn.operators.superposition_stack import superposition_step
from structattn.operators.superposition_stack.contents import superposition_stack_contents
from structattn.support.shapes import Bool, Float, Int


@dataclass(frozen=True)
class SuperpositionState:
    """The stack so far, one row per step, top first."""

    stack: Float[Tensor, "batch rows vector"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "SuperpositionState":
        """Return the states of some members of the batch, in the given order."""
        return SuperpositionState(self.stack.index_select(0, indices))


class SuperpositionStackAttention(nn.Module):
    """y_t = W_y r_t, where r_t is the top of a superposition stack (DuSell & Chiang 2024, section 5, (17) to (20)).

    a_t = softmax(W_a x_t) are the probabilities of push, no-op and pop; v_t = sigmoid(W_v x_t) is the pushed vector.
    No projection has a bias: 3 d + 2 d m parameters.

    Args:
        d_model: d.
        stack_embedding_size: m, the size of a stack vector.
        pushed_activation: applied to W_v x_t: "sigmoid" as in the paper, or "none" as in its code.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        stack_embedding_size: int,
        pushed_activation: Literal["sigmoid", "none"] = "sigmoid",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if pushed_activation not in ("sigmoid", "none"):
            raise ValueError(f"pushed_activation={pushed_activation!r}; expected 'sigmoid' or 'none'")
        self.d_model, self.pushed_activation = d_model, pushed_activation
        self.sizes = [3, stack_embedding_size]
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = Projection(d_model, sum(self.sizes), bias=False, **factory)  # W_a above W_v
        self.output = nn.Linear(stack_embedding_size, d_model, bias=False, **factory)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^2 m + T d m) each."""
        actions, values = self._actions_and_values(mask_padding(x, lengths))
        y: Tensor = self.output(superposition_stack(actions, values, lengths=lengths))
        return mask_padding(y, lengths)

    def initial_state(self, batch_size: int) -> SuperpositionState:
        """Return the empty stack."""
        return SuperpositionState(self.projection.weight.new_zeros(batch_size, 0, self.sizes[1]))

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: SuperpositionState
    ) -> tuple[Float[Tensor, "batch d_model"], SuperpositionState]:
        """Process one position. Cost: O(t m + d m) for step t, because any row can return to the top."""
        action, value = self._actions_and_values(x_t)
        state = SuperpositionState(superposition_step(state.stack, action, value))
        return self.output(state.stack[:, 0]), state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """Return the weights of the pushed vectors, and the actions."""
        actions, _ = self._actions_and_values(mask_padding(x, lengths))
        weights = superposition_stack_weights(actions, lengths=lengths)[:, None]
        return Explanation(
            "superposition",
            weights,
            details={"actions": mask_padding(actions, lengths)},
            contents=lambda depths: superposition_stack_contents(actions, depths, lengths=lengths).without_bottom(),
        )

    def action_logits(self, action: int) -> Bool[Tensor, " outputs"]:
        """Return which outputs of ``projection`` are the logit of an action (a ``SuperpositionAction``)."""
        return torch.arange(sum(self.sizes), device="cpu") == action

    def xavier_matrices(self) -> list[Tensor]:
        """Return W_a, W_v and W_y."""
        return [*self.projection.weight.split_with_sizes(self.sizes), self.output.weight]

    def _actions_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = self.projection(x).split_with_sizes(self.sizes, dim=-1)
        return torch.softmax(logits, -1), torch.sigmoid(values) if self.pushed_activation == "sigmoid" else values
