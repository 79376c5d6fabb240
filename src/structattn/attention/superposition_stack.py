"""Superposition stack attention."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.projections import InputProjection, one_position
from structattn.attention.protocols import Explanation
from structattn.attention.several_stacks import explain_stacks, fold, fold_lengths, unfold
from structattn.operators import SuperpositionAction, superposition_stack, superposition_stack_weights
from structattn.operators.common.checks import computing_precision, head_size, mask_padding, wrong_batch
from structattn.operators.common.states import Selectable
from structattn.operators.superposition_stack import superposition_step
from structattn.support.shapes import Bool, Float, Lengths


@dataclass(frozen=True)
class SuperpositionState(Selectable):
    """The stack so far, one row per step, top first; of several stacks, rows of all their vectors."""

    stack: Float[Tensor, "batch rows vector"]


class SuperpositionStackAttention(nn.Module):
    """y_t = W_y r_t, where r_t is the top of a superposition stack (DuSell & Chiang 2024, section 5, (17) to (20)).

    a_t = softmax(W_a x_t) are the probabilities of push, no-op and pop; v_t = sigmoid(W_v x_t) is the pushed vector.
    No projection has a bias: 3 d + 2 d m parameters. With H stacks, which are not in the paper, each has actions of its
    own, 3 H d parameters, and a part of m / H numbers of v_t and of r_t.

    Args:
        d_model: d.
        stack_embedding_size: m, the size of a stack vector; that of all stacks together.
        pushed_activation: applied to W_v x_t: "sigmoid" as in the paper, or "none" as in its code.
        num_heads: H, the number of stacks, which must divide m.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        stack_embedding_size: int,
        *,
        pushed_activation: Literal["sigmoid", "none"] = "sigmoid",
        num_heads: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if pushed_activation not in ("sigmoid", "none"):
            raise ValueError(f"pushed_activation={pushed_activation!r}; expected 'sigmoid' or 'none'")
        head_size(stack_embedding_size, num_heads, "stack_embedding_size")
        self.d_model, self.pushed_activation, self.num_heads = d_model, pushed_activation, num_heads
        self.sizes = [len(SuperpositionAction) * num_heads, stack_embedding_size]
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, sum(self.sizes), bias=False, **factory)  # W_a above W_v
        self.output = nn.Linear(stack_embedding_size, d_model, bias=False, **factory)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^2 m + T d m) each."""
        stacks = (fold(part, self.num_heads) for part in self._actions_and_values(mask_padding(x, lengths)))
        readings = superposition_stack(*stacks, lengths=fold_lengths(lengths, self.num_heads))
        return mask_padding(self.output(unfold(readings, self.num_heads)), lengths)

    def initial_state(self, batch_size: int) -> SuperpositionState:
        """Return the empty stack."""
        return SuperpositionState(self.projection.weight.new_zeros(batch_size, 0, self.sizes[1]))

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: SuperpositionState
    ) -> tuple[Float[Tensor, "batch d_model"], SuperpositionState]:
        """Process one position. Cost: O(t m + d m) for step t, because any row can return to the top."""
        if len(x_t) != len(state.stack):
            raise wrong_batch(x_t, state.stack)
        action, value = self._actions_and_values(one_position(x_t))
        (action, value), dtype = computing_precision(action=action, value=value)
        parts = state.stack.to(value.dtype), action, value
        stack, action, value = (fold(part, self.num_heads) for part in parts)
        stack = unfold(superposition_step(stack, action[:, 0], value[:, 0]), self.num_heads)
        return self.output(stack[:, 0].to(dtype)), SuperpositionState(stack)

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the weights of the pushed vectors, and the actions."""
        actions, _ = self._actions_and_values(mask_padding(x, lengths))
        weights, details, contents = explain_stacks(superposition_stack_weights, actions, lengths, self.num_heads)
        return Explanation(
            "superposition", weights, details=details, contents=lambda depths: contents(depths).without_bottom()
        )

    def action_logits(self, action: int) -> Bool[Tensor, " outputs"]:
        """Return which outputs of ``projection`` are the logit of an action (a ``SuperpositionAction``)."""
        index = torch.arange(sum(self.sizes), device="cpu")
        return (index < self.sizes[0]) & (index % len(SuperpositionAction) == action)

    def xavier_matrices(self) -> list[Tensor]:
        """Return W_a, W_v and W_y."""
        return [*self.projection.weight.split_with_sizes(self.sizes), self.output.weight]

    def _actions_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = self.projection(x).split_with_sizes(self.sizes, dim=-1)
        actions = torch.softmax(logits.unflatten(-1, (self.num_heads, -1)), -1).flatten(-2)
        return actions, torch.sigmoid(values) if self.pushed_activation == "sigmoid" else values
