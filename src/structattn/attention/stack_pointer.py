"""Stack pointer attention."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.projections import InputProjection, one_position
from structattn.attention.protocols import Explanation
from structattn.attention.several_stacks import explain_stacks, fold, fold_lengths, unfold
from structattn.operators import SuperpositionAction, stack_pointer, stack_pointer_step, stack_pointer_weights
from structattn.operators.common.checks import computing_precision, head_size, mask_padding, wrong_batch
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Bool, Float, Lengths


@dataclass(frozen=True)
class StackPointerState(Selectable):
    """The readings after 0, 1, 2, .. further pops: one row per step so far, and one for the empty stack."""

    stack: Float[Tensor, "batch rows d_model"]


class StackPointerAttention(nn.Module):
    """y_t = sum_n alpha_t(n) x_n, the expected top of a stack of positions (Li et al. 2024, section 3.2, (19) to (25)).

    a_t = softmax(W_A x_t + b_A) are the probabilities of push, no-op and pop; push puts position t on the stack. The
    values are the inputs themselves, without projections: the layer has 3 d + 3 parameters. alpha_t(n) = 0 for n > t:
    the layer is causal, even in a bidirectional encoder. With H stacks, which are not in the paper, each has actions of
    its own, 3 H (d + 1) parameters, and points for a part of d / H numbers of the values.

    Position 0 is the empty stack: alpha_0 = e_0, it is never pushed, and it has no action.

    - ``bottom="first_token"``: position 0 is the first position of x. If x begins with a begin-of-sequence symbol, as
      in language models and transductions, this is the paper to the letter. Otherwise the first token is also the empty
      stack, as in the paper's experiments with pretrained models.
    - ``bottom="learned"``: position 0 is a learned vector h_0 before x (d more parameters, initially zeros), and every
      position of x has an action and can be pushed. This is not in the paper.

    Args:
        d_model: d.
        bottom: what represents the empty stack.
        num_heads: H, the number of stacks, which must divide d.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        *,
        bottom: Literal["first_token", "learned"] = "first_token",
        num_heads: int = 1,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if bottom not in ("first_token", "learned"):
            raise ValueError(f"bottom={bottom!r}; expected 'first_token' or 'learned'")
        head_size(d_model, num_heads)
        self.d_model, self.num_heads = d_model, num_heads
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, len(SuperpositionAction) * num_heads, **factory)
        self.bottom = nn.Parameter(torch.zeros(d_model, **factory)) if bottom == "learned" else None  # h_0

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^2 d), or O(H T^3 + T^2 d) with a smaller constant, if cheaper."""
        x, num_heads = mask_padding(x, lengths), self.num_heads
        stacks = (fold(part, num_heads) for part in (self._actions(x, self.bottom is None), self._values(x)))
        return unfold(stack_pointer(*stacks, lengths=fold_lengths(lengths, num_heads)), num_heads)

    def initial_state(self, batch_size: int) -> StackPointerState:
        """Return the empty stack; it has no rows if the first position will represent it."""
        if self.bottom is None:
            return StackPointerState(self.projection.weight.new_zeros(batch_size, 0, self.projection.in_features))
        return StackPointerState(self.bottom.repeat(batch_size, 1, 1))

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: StackPointerState
    ) -> tuple[Float[Tensor, "batch d_model"], StackPointerState]:
        """Process one position. Cost: O(t d) for step t, because any row can return to the top."""
        if len(x_t) != len(state.stack):
            raise wrong_batch(x_t, state.stack)
        x, first = one_position(x_t), state.stack.shape[1] == 0
        (action, value), dtype = computing_precision(action=self._actions(x, first), value=x)
        parts = value if first else state.stack.to(value.dtype), action, value
        stack, action, value = (fold(part, self.num_heads) for part in parts)
        stack = unfold(stack_pointer_step(stack, action[:, 0], value[:, 0]), self.num_heads)
        return stack[:, 0].to(dtype, copy=True), StackPointerState(stack)  # callers may add to the output in place

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the weights of the empty stack and of each position, and the actions."""
        actions = self._actions(mask_padding(x, lengths), self.bottom is None)
        weights, details, contents = explain_stacks(stack_pointer_weights, actions, lengths, self.num_heads)
        if self.bottom is not None:
            return Explanation("stack_pointer", weights, first_source=1, details=details, contents=contents)
        # Column 0 is the first position. Column 1 would be the same position pushed, which cannot happen.
        weights = torch.cat([weights[..., :1], weights[..., 2:]], dim=-1)[..., : x.shape[1]]
        return Explanation(
            "stack_pointer", weights, details=details, contents=lambda depths: contents(depths).without_bottom()
        )

    def action_logits(self, action: int) -> Bool[Tensor, " outputs"]:
        """Return which outputs of ``projection`` are the logit of an action (a ``SuperpositionAction``)."""
        return torch.arange(self.projection.out_features, device="cpu") % len(SuperpositionAction) == action

    def xavier_matrices(self) -> list[Tensor]:
        """Return W_A."""
        return [self.projection.weight]

    def _actions(self, x: Tensor, first_is_bottom: bool) -> Tensor:
        """Probabilities of push, no-op and pop (B, T, 3 H); no-op for a first position that is the empty stack."""
        actions = torch.softmax(self.projection(x).unflatten(2, (self.num_heads, -1)), -1)
        if first_is_bottom:
            no_op = torch.zeros_like(actions)
            no_op[..., SuperpositionAction.NO_OP] = 1
            actions = torch.where(torch.arange(x.shape[1], device=x.device)[:, None, None] == 0, no_op, actions)
        return actions.flatten(2)

    def _values(self, x: Tensor) -> Tensor:
        """The value of the empty stack, then those of the positions: (B, T + 1, d)."""
        if self.bottom is not None:
            return torch.cat([self.bottom.expand(x.shape[0], 1, -1), x], dim=1)
        return torch.cat([x[:, :1].sum(1, keepdim=True), x], dim=1)  # the first position, or zeros if T = 0
