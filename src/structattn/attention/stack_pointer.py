"""Stack pointer attention."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.projections import Projection
from structattn.attention.protocols import Explanation
from structattn.operators import SuperpositionAction, stack_pointer, stack_pointer_step, stack_pointer_weights
from structattn.operators.common.checks import mask_padding
from structattn.operators.superposition_stack.contents import superposition_stack_contents
from structattn.support.shapes import Bool, Float, Int


@dataclass(frozen=True)
class StackPointerState:
    """The readings after 0, 1, 2, .. further pops: one row per step so far, and one for the empty stack."""

    stack: Float[Tensor, "batch rows d_model"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "StackPointerState":
        """Return the states of some members of the batch, in the given order."""
        return StackPointerState(self.stack.index_select(0, indices))


class StackPointerAttention(nn.Module):
    """y_t = sum_n alpha_t(n) x_n, the expected top of a stack of positions (Li et al. 2024, section 3.2, (19) to (25)).

    a_t = softmax(W_A x_t + b_A) are the probabilities of push, no-op and pop; push puts position t on the stack. The
    values are the inputs themselves, without projections: the layer has 3 d + 3 parameters. alpha_t(n) = 0 for n > t:
    the layer is causal, even in a bidirectional encoder.

    Position 0 is the empty stack: alpha_0 = e_0, it is never pushed, and it has no action.

    - ``bottom="first_token"``: position 0 is the first position of x. If x begins with a begin-of-sequence symbol, as
      in language models and transductions, this is the paper to the letter. Otherwise the first token is also the empty
      stack, as in the paper's experiments with pretrained models.
    - ``bottom="learned"``: position 0 is a learned vector h_0 before x (d more parameters, initially zeros), and every
      position of x has an action and can be pushed. This is not in the paper.

    Args:
        d_model: d.
        bottom: what represents the empty stack.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        bottom: Literal["first_token", "learned"] = "first_token",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if bottom not in ("first_token", "learned"):
            raise ValueError(f"bottom={bottom!r}; expected 'first_token' or 'learned'")
        self.d_model = d_model
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = Projection(d_model, len(SuperpositionAction), **factory)
        self.bottom = nn.Parameter(torch.zeros(d_model, **factory)) if bottom == "learned" else None  # h_0

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^2 d), or O(T^3 + T^2 d) with a smaller constant, whichever is cheaper."""
        x = mask_padding(x, lengths)
        return stack_pointer(self._actions(x, self.bottom is None), self._values(x), lengths=lengths)

    def initial_state(self, batch_size: int) -> StackPointerState:
        """Return the empty stack; it has no rows if the first position will represent it."""
        if self.bottom is None:
            return StackPointerState(self.projection.weight.new_zeros(batch_size, 0, self.projection.in_features))
        return StackPointerState(self.bottom.expand(batch_size, 1, -1))

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: StackPointerState
    ) -> tuple[Float[Tensor, "batch d_model"], StackPointerState]:
        """Process one position. Cost: O(t d) for step t, because any row can return to the top."""
        x, first = x_t[:, None], state.stack.shape[1] == 0
        stack = stack_pointer_step(x if first else state.stack, self._actions(x, first)[:, 0], x_t)
        return stack[:, 0], StackPointerState(stack)

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """Return the weights of the empty stack and of each position, and the actions."""
        actions = self._actions(mask_padding(x, lengths), self.bottom is None)
        weights = stack_pointer_weights(actions, lengths=lengths)[:, None]
        details = {"actions": mask_padding(actions, lengths)}
        contents = partial(superposition_stack_contents, actions, lengths=lengths)
        if self.bottom is not None:
            return Explanation("stack_pointer", weights, first_source=1, details=details, contents=contents)
        # Column 0 is the first position. Column 1 would be the same position pushed, which cannot happen.
        weights = torch.cat([weights[..., :1], weights[..., 2:]], dim=-1)[..., : x.shape[1]]
        return Explanation(
            "stack_pointer", weights, details=details, contents=lambda depths: contents(depths).without_bottom()
        )

    def action_logits(self, action: int) -> Bool[Tensor, " outputs"]:
        """Return which outputs of ``projection`` are the logit of an action (a ``SuperpositionAction``)."""
        return torch.arange(3, device="cpu") == action

    def xavier_matrices(self) -> list[Tensor]:
        """Return W_A."""
        return [self.projection.weight]

    def _actions(self, x: Tensor, first_is_bottom: bool) -> Tensor:
        """Probabilities of push, no-op and pop (B, T, 3); always no-op for a first position that is the empty stack."""
        actions = torch.softmax(self.projection(x), -1)
        if not first_is_bottom:
            return actions
        no_op = torch.zeros_like(actions)
        no_op[..., SuperpositionAction.NO_OP] = 1
        return torch.where(torch.arange(x.shape[1], device=x.device)[:, None] == 0, no_op, actions)

    def _values(self, x: Tensor) -> Tensor:
        """The value of the empty stack, then those of the positions: (B, T + 1, d)."""
        if self.bottom is not None:
            return torch.cat([self.bottom.expand(x.shape[0], 1, -1), x], dim=1)
        return torch.cat([x[:, :1].sum(1, keepdim=True), x], dim=1)  # the first position, or zeros if T = 0
