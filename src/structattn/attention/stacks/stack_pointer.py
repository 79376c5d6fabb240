"""Stack pointer attention."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.explanation import Explanation
from structattn.attention.padding import without_padding
from structattn.operators import SuperpositionAction, stack_pointer, stack_pointer_step, stack_pointer_weights


@dataclass(frozen=True)
class StackPointerState:
    """What would be read after 0, 1, 2, .. further pops: a row for each step so far, and one for the empty stack."""

    stack: Float[Tensor, "batch rows d_model"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "StackPointerState":
        """The states of some members of the batch, in a new order."""
        return StackPointerState(self.stack.index_select(0, indices))


class StackPointerAttention(nn.Module):
    """y_t = sum_n alpha_t(n) x_n, the expected top of a stack of positions (Li et al. 2024, section 3.2, (19) to (25)).

    a_t = softmax(W_A x_t + b_A) gives the probabilities of push, no-op and pop: push puts position t on the stack. The
    values are the inputs themselves, with no map before or after, so that 3 d + 3 parameters and the empty stack's
    value are all that is learned. alpha_t(n) = 0 for n > t: the layer is causal, also within a bidirectional encoder.

    In the paper, position 0 is the begin-of-sequence symbol and stands for the empty stack: alpha_0 = e_0, whatever its
    action. Two ways to have that:

    - ``bottom="bos"``: the layer brings that column itself, a learned vector h_0 before the first position of x (d more
      parameters, zeros at first). Every position of x acts on the stack and can be told from the empty one, a
      begin-of-sequence symbol of x's own included. In a causal model the paper's column is such a vector, too: the
      hidden state of the symbol that all inputs begin with is the same for all.
    - ``bottom="first_token"``: the first position of x is that column, as in the paper's code. It reads itself, its
      action is always a no-op, and it cannot be told from the empty stack. Where x begins with a begin-of-sequence
      symbol this is the paper's model to the letter.

    Args:
        d_model: d.
        bottom: what stands for the empty stack.
    """

    def __init__(self, d_model: int, bottom: Literal["bos", "first_token"] = "bos") -> None:
        super().__init__()
        if bottom not in ("bos", "first_token"):
            raise ValueError(f"bottom={bottom!r}; expected 'bos' or 'first_token'")
        self.projection = nn.Linear(d_model, len(SuperpositionAction))
        self.bottom = nn.Parameter(torch.zeros(d_model)) if bottom == "bos" else None  # h_0

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence. Cost: O(T^2 d), or O(T^3 + T^2 d) with a smaller constant, whichever is cheaper."""
        x = without_padding(x, lengths)
        return stack_pointer(self._actions(x, self.bottom is None), self._values(x), lengths=lengths)

    def initial_state(self, batch_size: int) -> StackPointerState:
        """The empty stack; without rows where the first position will stand for it."""
        if self.bottom is None:
            return StackPointerState(self.projection.weight.new_zeros(batch_size, 0, self.projection.in_features))
        return StackPointerState(self.bottom.expand(batch_size, 1, -1))

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: StackPointerState
    ) -> tuple[Float[Tensor, "batch d_model"], StackPointerState]:
        """One more position. Cost: O(t d) for step t, because any row may come back to the top."""
        x, first = x_t[:, None], state.stack.shape[1] == 0
        stack = stack_pointer_step(x if first else state.stack, self._actions(x, first)[:, 0], x_t)
        return stack[:, 0], StackPointerState(stack)

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """How much of the empty stack and of each position is read, and the actions."""
        actions = self._actions(without_padding(x, lengths), self.bottom is None)
        weights = stack_pointer_weights(actions, lengths=lengths)[:, None]
        details = {"actions": without_padding(actions, lengths)}
        if self.bottom is not None:
            return Explanation("stack_pointer", weights, first_source=1, details=details)
        # Column 0 is the first position; column 1 would be the same one pushed, which never happens.
        weights = torch.cat([weights[..., :1], weights[..., 2:]], dim=-1)[..., : x.shape[1]]
        return Explanation("stack_pointer", weights, details=details)

    def fully_connected(self) -> list[Tensor]:
        """W_A."""
        return [self.projection.weight]

    def _actions(self, x: Tensor, first_is_bottom: bool) -> Tensor:
        """Push, no-op and pop (B, T, 3); a no-op at the first position of ``x`` where that is the empty stack."""
        actions = torch.softmax(self.projection(x), -1)
        if not first_is_bottom:
            return actions
        no_op = torch.zeros_like(actions)
        no_op[..., SuperpositionAction.NO_OP] = 1
        return torch.where(torch.arange(x.shape[1], device=x.device)[:, None] == 0, no_op, actions)

    def _values(self, x: Tensor) -> Tensor:
        """(B, T + 1, d): the value of the empty stack, then the positions."""
        if self.bottom is not None:
            return torch.cat([self.bottom.expand(x.shape[0], 1, -1), x], dim=1)
        return torch.cat([x[:, :1].sum(1, keepdim=True), x], dim=1)  # the sum of one position or none
