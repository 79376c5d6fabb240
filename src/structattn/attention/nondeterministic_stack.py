"""Nondeterministic stack attention."""

import math
from functools import lru_cache, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.projections import InputProjection, one_position
from structattn.attention.protocols import Explanation
from structattn.operators import (
    NondeterministicStackState,
    nondeterministic_stack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_initial_state,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_step,
    nondeterministic_stack_weights,
)
from structattn.operators.common.checks import mask_padding
from structattn.operators.common.implementation import Implementation
from structattn.operators.nondeterministic_stack.arguments import checked_window, split_logits
from structattn.operators.nondeterministic_stack.contents import (
    nondeterministic_stack_contents,
    nondeterministic_stack_prefix_posteriors,
)
from structattn.support.shapes import Bool, Float, Lengths
from structattn.support.sizes import require_positive


class NondeterministicStackAttention(nn.Module):
    """y_t = W_y r_t, where r_t is a nondeterministic stack's reading (DuSell & Chiang 2024, section 5, (17) to (20)).

    W_a x_t are the log-weights of all transitions, v_t = sigmoid(W_v x_t) is the pushed vector, and v_0 = sigmoid(w_v)
    is the bottom vector. The reading is the expected top vector for each state and top symbol: Q S m numbers, state
    major, then symbol, then vector. No projection has a bias: d (A + m + Q S m) + m parameters
    with A = Q^2 S (2 S + 1) transitions, laid out for each (q, x) as push (r, y), replace (r, y), pop (r).

    Args:
        d_model: d.
        num_states: Q, the number of states.
        stack_alphabet_size: S, the number of stack symbols, the bottom symbol included.
        stack_embedding_size: m, the size of a stack vector.
        pushed_activation: applied to W_v x_t: "sigmoid" as in the paper, or "exp" as in its code.
        window: number of steps after its push in which an item can be popped; None: no limit, as in the paper.
        pop_offset: added to the log-weights of pops; 0 in the paper. After a layer norm it changes what is learned
            first, not what can be computed (docs/finding_the_stack.md).
        phase_offset: subtracted from the log-weights of pushes and replacements that leave state 0, and added to those
            of pops between other states; 0 in the paper. Initially state 0 pushes and the others pop.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_states: int,
        stack_alphabet_size: int,
        stack_embedding_size: int,
        *,
        pushed_activation: Literal["sigmoid", "exp"] = "sigmoid",
        window: int | None = None,
        pop_offset: float = 0.0,
        phase_offset: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if pushed_activation not in ("sigmoid", "exp"):
            raise ValueError(f"pushed_activation={pushed_activation!r}; expected 'sigmoid' or 'exp'")
        require_positive(
            num_states=num_states, stack_alphabet_size=stack_alphabet_size, stack_embedding_size=stack_embedding_size
        )
        if not pop_offset < torch.inf:
            raise ValueError(f"pop_offset={pop_offset}; expected a number, or -inf, which forbids pops")
        if not math.isfinite(phase_offset):
            raise ValueError(f"phase_offset={phase_offset}; expected a number")
        self.d_model = d_model
        self.num_states, self.stack_alphabet_size = num_states, stack_alphabet_size
        self.pushed_activation: Literal["sigmoid", "exp"] = pushed_activation
        self.window = checked_window(window)
        self.pop_offset, self.phase_offset = pop_offset, phase_offset
        configurations = num_states * stack_alphabet_size
        self.sizes = [configurations * (2 * configurations + num_states), stack_embedding_size]
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, sum(self.sizes), bias=False, **factory)  # W_a above W_v
        self.output = nn.Linear(configurations * stack_embedding_size, d_model, bias=False, **factory)
        self.bottom = nn.Parameter(torch.zeros(stack_embedding_size, **factory))  # w_v

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^3 Q^3 S), or O(T D^2 Q^3 S) with a window D, plus projections."""
        logits, values = self._logits_and_values(mask_padding(x, lengths))
        transitions, bottom = self._transitions(logits), torch.sigmoid(self.bottom)
        readings = nondeterministic_stack(*transitions, values, bottom, lengths=lengths, window=self.window)
        return mask_padding(self.output(readings.flatten(2)), lengths)

    def initial_state(self, batch_size: int, implementation: Implementation = "auto") -> NondeterministicStackState:
        """Return the state before the first step; with ``implementation="reference"`` steps support `torch.export`."""
        bottom = torch.sigmoid(self.bottom)
        sizes = self.num_states, self.stack_alphabet_size
        return nondeterministic_stack_initial_state(
            bottom, batch_size, *sizes, window=self.window, implementation=implementation
        )

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: NondeterministicStackState
    ) -> tuple[Float[Tensor, "batch d_model"], NondeterministicStackState]:
        """Process one position. Cost: O(t^2 Q^3 S) for step t, or O(D^2 Q^3 S) with a window D."""
        logits, values = (part[:, 0] for part in self._logits_and_values(one_position(x_t)))
        reading, state = nondeterministic_stack_step(*self._transitions(logits), values, state)
        return self.output(reading.flatten(1)), state

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the weights of the bottom vector and the pushed vectors, the actions, and the highest-weighted run."""
        transitions = self._transitions(self._logits_and_values(mask_padding(x, lengths))[0])
        weights, details = weights_and_runs(transitions, lengths, self.window)
        return Explanation(
            "nondeterministic",
            weights[:, None],
            first_source=1,
            details=details,
            contents=partial(nondeterministic_stack_contents, *transitions, lengths=lengths, window=self.window),
        )

    def action_logits(self, action: int) -> Bool[Tensor, " outputs"]:
        """Return which outputs of ``projection`` are log-weights of an action (a ``StackAction``)."""
        configurations = self.num_states * self.stack_alphabet_size
        kinds = [0] * configurations + [1] * configurations + [2] * self.num_states
        is_action = [kind == action for kind in kinds] * configurations
        return torch.tensor(is_action + [False] * self.sizes[1], device="cpu")

    def transition_offsets(self) -> Float[Tensor, " transitions"]:
        """Return what is added to the A outputs of ``projection`` that are log-weights, in float64 on the CPU."""
        sizes = self.num_states, self.stack_alphabet_size
        offsets = _transition_offsets(*sizes, self.pop_offset, self.phase_offset)
        return torch.tensor(offsets, dtype=torch.float64, device="cpu")

    def xavier_matrices(self) -> list[Tensor]:
        """Return W_a, W_v and W_y."""
        return [*self.projection.weight.split_with_sizes(self.sizes), self.output.weight]

    def _logits_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = self.projection(x).split_with_sizes(self.sizes, dim=-1)
        return logits, torch.sigmoid(values) if self.pushed_activation == "sigmoid" else torch.exp(values)

    def _transitions(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        transitions = split_logits(logits, self.num_states, self.stack_alphabet_size)
        return _with_offsets(*transitions, self.pop_offset, self.phase_offset)


@lru_cache
def _transition_offsets(states: int, symbols: int, pop_offset: float, phase_offset: float) -> tuple[float, ...]:
    offsets: list[float] = []
    for q in range(states):
        push = [-phase_offset if q == 0 < r else 0.0 for r in range(states) for _ in range(symbols)]
        pop = [pop_offset + phase_offset if q > 0 and r > 0 else pop_offset for r in range(states)]
        offsets += [*push, *push, *pop] * symbols
    return tuple(offsets)


def _with_offsets(
    push: Tensor, replace: Tensor, pop: Tensor, pop_offset: float, phase_offset: float
) -> tuple[Tensor, Tensor, Tensor]:
    if pop_offset:
        pop = pop + pop_offset
    if phase_offset:
        pops = torch.arange(pop.shape[-1], device=pop.device) > 0  # states other than 0
        leaves = ~pops[:, None] & pops
        push, replace = (x - phase_offset * leaves.to(x.dtype)[:, None, :, None] for x in (push, replace))
        pop = pop + phase_offset * (pops[:, None] & pops).to(pop.dtype)[:, None]
    return push, replace, pop


def weights_and_runs(
    transitions: tuple[Tensor, Tensor, Tensor], lengths: Tensor | None, window: int | None
) -> tuple[Float[Tensor, "batch time source"], dict[str, Tensor]]:
    """Return the weights of the bottom vector and the pushed ones in each reading, and the details of ``Explanation``.

    Args:
        transitions: logits of push, replace and pop, as for ``nondeterministic_stack``.
        lengths: number of steps of each sequence.
        window: as for ``nondeterministic_stack``.
    """
    weights = nondeterministic_stack_weights(*transitions, lengths=lengths, window=window)
    posteriors = nondeterministic_stack_posteriors(*transitions, lengths=lengths, window=window)
    run = nondeterministic_stack_best_run(*transitions, lengths=lengths, window=window)
    prefixes = nondeterministic_stack_prefix_posteriors(*transitions, lengths=lengths, window=window)
    top = prefixes.tops.flatten(2).argmax(-1)  # the first at steps without runs
    symbols = prefixes.tops.shape[-1]
    return weights.sum((2, 3)), {
        "prefix_actions": prefixes.actions,
        "prefix_tops": torch.stack([top // symbols, top % symbols], dim=-1),
        "actions": torch.stack([posterior.flatten(2).sum(-1) for posterior in posteriors], dim=-1),
        "best_run": torch.stack([run.actions, run.states, run.symbols], dim=-1),
    }
