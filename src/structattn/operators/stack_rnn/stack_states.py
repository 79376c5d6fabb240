"""States of the stack of a recurrent network between two steps, as immutable values."""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from structattn.operators.common.implementation import Implementation
from structattn.operators.common.states import Selectable
from structattn.operators.nondeterministic_stack import (
    NondeterministicStackState,
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)
from structattn.operators.stack_rnn.stacks import RecurrentStack
from structattn.operators.stratified_stack import stratified_shares, stratified_step
from structattn.operators.superposition_stack import superposition_step
from structattn.support.shapes import Float, Int


@runtime_checkable
class StackState(Protocol):
    """State of a stack."""

    def reading(self) -> Float[Tensor, "batch reading"]:
        """Return the reading of the last step."""
        ...

    def after(self, actions: Float[Tensor, "batch action"], value: Float[Tensor, "batch vector"]) -> "StackState":
        """Return the stack after one step; ``actions`` are the network's logits, ``value`` the vector to push."""
        ...

    def select(self, indices: Int[Tensor, " chosen"]) -> "StackState":
        """Select and reorder members of the batch."""
        ...


@dataclass(frozen=True)
class SuperpositionRows(Selectable):
    """A superposition stack: one row for each step so far, the top first, and at most ``depth`` rows."""

    rows: Float[Tensor, "batch rows vector"]
    depth: int | None = None

    def reading(self) -> Tensor:
        """Return the first row, or zeros if there is none."""
        return self.rows[:, 0] if self.rows.shape[1] else self.rows.new_zeros(self.rows.shape[0], self.rows.shape[2])

    def after(self, actions: Tensor, value: Tensor) -> "SuperpositionRows":
        """Add a row. Cost: O(min(t, depth) m)."""
        rows = superposition_step(self.rows, torch.softmax(actions, -1), value, self.depth)
        return SuperpositionRows(rows, self.depth)


@dataclass(frozen=True)
class StratifiedItems(Selectable):
    """A stratified stack: strengths and vectors of all steps so far, the top last."""

    strengths: Float[Tensor, "batch items"]
    values: Float[Tensor, "batch items vector"]

    def reading(self) -> Tensor:
        """Read one unit of strength from the top."""
        return (stratified_shares(self.strengths)[:, None] @ self.values)[:, 0]

    def after(self, actions: Tensor, value: Tensor) -> "StratifiedItems":
        """Add an item. Cost: O(t m)."""
        strengths = stratified_step(self.strengths, torch.sigmoid(actions))
        return StratifiedItems(strengths, torch.cat([self.values, value[:, None]], 1))


@dataclass(frozen=True)
class NondeterministicRuns(Selectable):
    """A nondeterministic stack, with the layout of actions of ``RecurrentStack``."""

    stack: RecurrentStack
    state: NondeterministicStackState
    dtype: torch.dtype

    def reading(self) -> Tensor:
        """Return the expected top vectors, flattened from (state, symbol, vector)."""
        return self.state.reading.flatten(1).to(self.dtype)  # half precisions are computed in float32

    def after(self, actions: Tensor, value: Tensor) -> "NondeterministicRuns":
        """Take one step. Cost: O(t^2 Q^3 S)."""
        _, state = nondeterministic_stack_step(*self.stack.transitions(actions), value, self.state)
        return replace(self, state=state)


def empty_stack(
    stack: RecurrentStack, bottom: Float[Tensor, " vector"], batch_size: int, implementation: Implementation = "auto"
) -> StackState:
    """Return the stack before the first step.

    Args:
        stack: its kind and sizes.
        bottom: the vector at the bottom of a nondeterministic stack; of the others only dtype and device are taken.
        batch_size: B.
        implementation: of the nondeterministic stack's steps.
    """
    nothing = bottom.new_zeros(batch_size, 0, stack.vector)
    match stack.name:
        case "superposition":
            return SuperpositionRows(nothing, stack.depth)
        case "stratified":
            return StratifiedItems(nothing[..., 0], nothing)
        case "nondeterministic":
            state = nondeterministic_stack_initial_state(
                bottom, batch_size, stack.states, stack.symbols, window=stack.window, implementation=implementation
            )
            return NondeterministicRuns(stack, state, bottom.dtype)
