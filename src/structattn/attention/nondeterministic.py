"""Nondeterministic stack attention."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.explanation import Explanation
from structattn.attention.padding import without_padding
from structattn.operators import (
    nondeterministic_stack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)


@dataclass(frozen=True)
class NondeterministicState:
    """The logits and the pushed vectors of the steps so far, from which the reading can be found again."""

    logits: Float[Tensor, "batch time transitions"]
    values: Float[Tensor, "batch time vector"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "NondeterministicState":
        """The states of some members of the batch, in a new order."""
        return NondeterministicState(self.logits.index_select(0, indices), self.values.index_select(0, indices))


class NondeterministicStackAttention(nn.Module):
    """y_t = W_y r_t, where r_t is a nondeterministic stack's reading (DuSell & Chiang 2024, section 5, (17) to (20)).

    W_a x_t gives the logarithms of the weights of all transitions, v_t = sigmoid(W_v x_t) the vector to push, and
    v_0 = sigmoid(w_v) lies at the bottom. The reading holds the expected top vector for each state and top symbol:
    |Q| |S| m numbers, state major, then symbol, then vector. No map has a bias: d (A + m + |Q| |S| m) + m parameters
    with A = |Q|^2 |S| (2 |S| + 1) transitions, laid out for each (q, x) as push (r, y), replace (r, y), pop (r).

    Args:
        width: d.
        states: |Q|.
        symbols: |S|, the bottom symbol included.
        vector: m, the size of a stack vector.
        pushed_activation: what makes v_t out of W_v x_t: "sigmoid" as in the paper, or "exp" as in its code.
    """

    def __init__(
        self,
        width: int,
        states: int,
        symbols: int,
        vector: int,
        pushed_activation: Literal["sigmoid", "exp"] = "sigmoid",
    ) -> None:
        super().__init__()
        if pushed_activation not in ("sigmoid", "exp"):
            raise ValueError(f"pushed_activation={pushed_activation!r}; expected 'sigmoid' or 'exp'")
        self.states, self.symbols, self.pushed_activation = states, symbols, pushed_activation
        configurations = states * symbols
        self.sizes = [configurations * (2 * configurations + states), vector]
        self.projection = nn.Linear(width, sum(self.sizes), bias=False)  # W_a above W_v
        self.output = nn.Linear(configurations * vector, width, bias=False)
        self.bottom = nn.Parameter(torch.zeros(vector))  # w_v

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """A whole sequence. Cost: O(T^3 |Q|^3 |S|) and the projections for each."""
        logits, values = self._logits_and_values(without_padding(x, lengths))
        return without_padding(self._readings_out(logits, values, lengths), lengths)

    def initial_state(self, batch_size: int) -> NondeterministicState:
        """No steps yet."""
        logits, values = (self.projection.weight.new_zeros(batch_size, 0, size) for size in self.sizes)
        return NondeterministicState(logits, values)

    def step(
        self, x_t: Float[Tensor, "batch width"], state: NondeterministicState
    ) -> tuple[Float[Tensor, "batch width"], NondeterministicState]:
        """One more position. The whole past is computed again: O(t^3 |Q|^3 |S|) for step t."""
        logits, values = self._logits_and_values(x_t[:, None])
        state = NondeterministicState(
            torch.cat([state.logits, logits], dim=1), torch.cat([state.values, values], dim=1)
        )
        return self._readings_out(state.logits, state.values, None)[:, -1], state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """How much of the bottom vector and of each pushed vector is read, the actions, and the heaviest run."""
        transitions = self._transitions(self._logits_and_values(without_padding(x, lengths))[0])
        weights = nondeterministic_stack_weights(*transitions, lengths=lengths).sum((2, 3))[:, None]
        posteriors = nondeterministic_stack_posteriors(*transitions, lengths=lengths)
        run = nondeterministic_stack_best_run(*transitions, lengths=lengths)
        details = {
            "actions": torch.stack([posterior.flatten(2).sum(-1) for posterior in posteriors], dim=-1),
            "best_run": torch.stack([run.actions, run.states, run.symbols], dim=-1),
        }
        return Explanation("nondeterministic", weights, first_source=1, details=details)

    def fully_connected(self) -> list[Tensor]:
        """W_a, W_v, W_y."""
        return [*self.projection.weight.split_with_sizes(self.sizes), self.output.weight]

    def _logits_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = self.projection(x).split_with_sizes(self.sizes, dim=-1)
        return logits, torch.sigmoid(values) if self.pushed_activation == "sigmoid" else torch.exp(values)

    def _transitions(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Push and replace (B, T, Q, S, Q, S), pop (B, T, Q, S, Q)."""
        targets = self.states * self.symbols
        shape = (*logits.shape[:2], self.states, self.symbols)
        rows = logits.view(*shape, 2 * targets + self.states)
        push, replace, pop = rows.split_with_sizes([targets, targets, self.states], dim=-1)
        return push.view(*shape, *shape[2:]), replace.view(*shape, *shape[2:]), pop

    def _readings_out(self, logits: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
        bottom = torch.sigmoid(self.bottom)
        readings = nondeterministic_stack(*self._transitions(logits), values, bottom, lengths=lengths)
        y: Tensor = self.output(readings.flatten(2))
        return y
