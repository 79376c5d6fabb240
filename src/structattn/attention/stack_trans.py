"""StackTrans: small bounded superposition stacks that are read over all cells."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.projections import InputProjection, one_position
from structattn.attention.protocols import Explanation
from structattn.attention.several_stacks import fold, fold_lengths
from structattn.operators import SuperpositionAction
from structattn.operators.common.checks import (
    checked_lengths,
    computing_precision,
    head_size,
    mask_padding,
    without_autocast,
    wrong_batch,
)
from structattn.operators.common.stack_contents import StackContents
from structattn.operators.common.states import Selectable
from structattn.operators.superposition_stack import superposition_step
from structattn.operators.superposition_stack.reference import superposition_stack_contents
from structattn.support.errors import UsageError
from structattn.support.shapes import Bool, Float, Lengths

Form = Literal["released", "paper"]
_NULL_DEVIATION = 0.01


@dataclass(frozen=True)
class StackTransState(Selectable):
    """The cells of all stacks, top first; the last number of each is its mask, the probability that it is filled."""

    cells: Float[Tensor, "batch stacks depth cell"]


class StackTransAttention(nn.Module):
    """y_t = W_o r_t + (e^gamma - 1) x_t, r_t the readings of H stacks (StackTrans, arXiv:2507.15343, section 3).

    Each stack is a superposition stack of K cells of size m / H, whose items are lost below the last cell, with actions
    a_t = softmax(..), and a mask M that moves with the cells. As an added stack and over depth, whose residual
    connections have no norm and no dropout, the layer is e^gamma x + W_o r, as published. In place of attention the
    gain is dropped out with the reading, and in a pre-norm block it weights the normalized input:
    x + Dropout((e^gamma - 1) LN(x) + W_o r), r of LN(x). The reading is over all cells:

    - ``form="released"``, as the authors' package: actions and pushed vectors are linear in x, a learned null cell v is
      read beside the cells, and the weights are those of softmax(w . S_i + log M_i), log M = 0 for v.
      d (3 H + 2 m) + 2 m / H + 1 parameters.
    - ``form="paper"``: actions are linear in the pushed vector of their stack, each stack has a w, and the weights are
      softmax(w . (M_i S_i)), so that an empty cell has the score 0. 2 m d + 4 m + 1 parameters.

    Over time, the state goes from position to position. Over depth, as published, it goes from layer to layer and is
    empty at each position (``DepthStackLayers``).

    Args:
        d_model: d.
        stack_embedding_size: m, the size of the vectors of all stacks together.
        num_heads: H, the number of stacks, which must divide m.
        depth: K.
        form: see above.
        read: "after" the action of the same position, or "before" it, as the paper's indices say.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        stack_embedding_size: int = 64,
        num_heads: int = 4,
        *,
        depth: int = 24,
        form: Form = "released",
        read: Literal["after", "before"] = "after",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if form not in ("released", "paper") or read not in ("after", "before") or depth < 1:
            raise ValueError(
                f"form={form!r}, read={read!r}, depth={depth}; "
                "expected 'released' or 'paper', 'after' or 'before', and at least 1"
            )
        self.size = head_size(stack_embedding_size, num_heads, "stack_embedding_size")
        self.d_model, self.num_heads, self.depth, self.form, self.read = d_model, num_heads, depth, form, read
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        own = form == "paper"
        self.sizes = [0 if own else len(SuperpositionAction) * num_heads, stack_embedding_size]
        self.projection = InputProjection(d_model, sum(self.sizes), bias=False, **factory)  # W_a above W_u
        actions = torch.empty(num_heads, len(SuperpositionAction), self.size, **factory)
        self.actions = nn.Parameter(actions) if own else None  # A of each stack
        self.score = nn.Parameter(torch.empty(num_heads * self.size if own else self.size, **factory))  # w
        self.null = None if own else nn.Parameter(torch.empty(self.size, **factory))  # v
        self.log_gain = nn.Parameter(torch.empty(1, **factory))  # gamma; FSDP shards no scalars
        self.output = nn.Linear(stack_embedding_size, d_model, bias=False, **factory)
        self.initialize_own()

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T K m + T d m) each, step by step."""
        x = mask_padding(x, lengths)
        ends = None if lengths is None else checked_lengths(lengths, x.shape[0], x.shape[1], x.device)
        cells, before = self.initial_state(x.shape[0]).cells, []
        after, parts = [], [part.unbind(1) for part in self._actions_and_values(x)]
        with without_autocast(x.device):
            for action, value in zip(*parts, strict=True):
                before.append(cells)
                cells = self._next(cells, action, value)
                after.append(cells)
        stacks = after if self.read == "after" else before
        chosen = torch.stack(stacks, 1) if stacks else cells[:, None][:, :0]
        return mask_padding(self._output(x, chosen), ends)

    def initial_state(self, batch_size: int) -> StackTransState:
        """Return empty stacks."""
        shape = batch_size, self.num_heads, self.depth, self.size + 1
        return StackTransState(self.projection.weight.new_zeros(shape))

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: StackTransState
    ) -> tuple[Float[Tensor, "batch d_model"], StackTransState]:
        """Process one position. Cost: O(K m + d m)."""
        if len(x_t) != len(state.cells):
            raise wrong_batch(x_t, state.cells)
        action, value = (part[:, 0] for part in self._actions_and_values(one_position(x_t)))
        with without_autocast(x_t.device):
            cells = self._next(state.cells, action, value)
        return self._output(x_t, cells if self.read == "after" else state.cells), StackTransState(cells)

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the weights of the null cell (of "paper", zeros) and of the pushed vectors, and the actions.

        The actions are those of each stack, (B, T, H, 3), or (B, T, 3) if there is one. Cost: O(T^2 K m).
        """
        x = mask_padding(x, lengths)
        (actions, values), (batch, time, _) = self._actions_and_values(x), x.shape
        flat = mask_padding(actions.flatten(2), lengths)
        folded, ends = fold(flat, self.num_heads), fold_lengths(lengths, self.num_heads)

        def contents(depths: int) -> StackContents:
            found = superposition_stack_contents(folded, depths, lengths=ends, limit=self.depth)
            return found.of_stacks(self.num_heads)

        positions = contents(self.depth).positions.to(values.dtype)
        positions = positions.view(batch, time, self.num_heads, self.depth, time + 1)
        if self.read == "before":
            positions = torch.cat([torch.zeros_like(positions[:, :1]), positions], 1)[:, :time]
        pushed = values.transpose(1, 2)[:, None]
        cells = torch.cat([positions[..., 1:] @ pushed, positions.sum(-1, keepdim=True)], -1)
        weights, null = self._weights(cells)
        sources = (weights[..., None, :] @ positions).squeeze(-2)
        sources[..., 0] = null
        sources = mask_padding(sources.flatten(2), lengths).view(sources.shape)
        details = {"actions": flat.view(actions.shape) if self.num_heads > 1 else flat}
        return Explanation("stack_trans", sources.transpose(1, 2), first_source=1, details=details, contents=contents)

    @torch.no_grad()
    def initialize_own(self) -> None:
        """Draw A, w and v and set gamma to 0; the linear maps stay."""
        bound = self.size**-0.5
        nn.init.uniform_(self.score, -bound, bound)
        nn.init.zeros_(self.log_gain)
        if self.actions is not None:
            nn.init.uniform_(self.actions, -bound, bound)
        if self.null is not None:
            nn.init.normal_(self.null, std=_NULL_DEVIATION)

    def action_logits(self, action: int) -> Bool[Tensor, " outputs"]:
        """Return which outputs of ``projection`` are the logit of an action (a ``SuperpositionAction``).

        Raises:
            UsageError: the form is that of the paper, whose logits are linear in the pushed vectors.
        """
        if self.actions is not None:
            raise UsageError("actions of StackTrans in the form of the paper are no outputs of its projection")
        index = torch.arange(sum(self.sizes), device="cpu")
        return (index < self.sizes[0]) & (index % len(SuperpositionAction) == action)

    def xavier_matrices(self) -> list[Tensor]:
        """Return W_a, if it is one, W_u and W_o."""
        return [
            *(part for part in self.projection.weight.split_with_sizes(self.sizes) if len(part)),
            self.output.weight,
        ]

    def _actions_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (B, T, H, 3) and pushed vectors (B, T, H, m / H), in the dtype in which stacks compute."""
        logits, values = self.projection(x).split_with_sizes(self.sizes, dim=-1)
        values = values.view(*x.shape[:2], self.num_heads, self.size)
        if self.actions is None:
            logits = logits.view(*x.shape[:2], self.num_heads, len(SuperpositionAction))
        else:
            logits = (self.actions @ values[..., None]).squeeze(-1)
        (logits, values), _ = computing_precision(logits=logits, values=values)
        return torch.softmax(logits, -1), values

    def _next(self, cells: Tensor, action: Tensor, value: Tensor) -> Tensor:
        """Return the cells after one more action; what is pushed has the mask 1."""
        pushed = torch.cat([value, torch.ones_like(value[..., :1])], -1)
        stacks = cells.to(value.dtype).flatten(0, 1), action.flatten(0, 1), pushed.flatten(0, 1)
        return superposition_step(*stacks, depth=self.depth).view(cells.shape)

    def _weights(
        self, cells: Float[Tensor, "*batch stacks depth cell"]
    ) -> tuple[Float[Tensor, "*batch stacks depth"], Float[Tensor, "*batch stacks"]]:
        """Return the weights of the cells, and that of the null cell, in a reading."""
        stack, mask = cells[..., :-1], cells[..., -1]
        score = self.score.to(cells.dtype).view(-1, self.size)[..., None]
        if self.null is None:
            weights = torch.softmax(mask * (stack @ score).squeeze(-1), -1)
            return weights, torch.zeros_like(weights[..., 0])
        null = (self.null.to(cells.dtype) @ score[0]).expand(*stack.shape[:-2], 1)
        masks = torch.cat([torch.ones_like(null), mask], -1)
        scores = torch.cat([null, (stack @ score).squeeze(-1)], -1).masked_fill(masks == 0, -torch.inf)
        # Masks are factors of the exponentials: a logarithm of 0 has no gradient.
        weights = torch.exp(scores - scores.amax(-1, keepdim=True).detach()) * masks
        weights = weights / weights.sum(-1, keepdim=True)
        return weights[..., 1:], weights[..., 0]

    def _output(self, x: Tensor, cells: Float[Tensor, "*batch stacks depth cell"]) -> Tensor:
        with without_autocast(x.device):
            weights, null = self._weights(cells)
            readings = (weights[..., None, :] @ cells[..., :-1]).squeeze(-2)
            if self.null is not None:
                readings = readings + null[..., None] * self.null.to(readings.dtype)
        y: Tensor = self.output(readings.flatten(-2).to(x.dtype))
        return y + torch.expm1(self.log_gain).to(y.dtype) * x
