"""What is on the stack of a recurrent network between two steps: values, whatever is done with them later."""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.implementation import Implementation
from structattn.operators.nondeterministic_stack import (
    NondeterministicStackState,
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)
from structattn.operators.stack_rnn.stacks import RecurrentStack
from structattn.operators.stratified_stack import stratified_shares, stratified_step
from structattn.operators.superposition_stack import superposition_step


class StackState(Protocol):
    """A stack that has been read."""

    def reading(self) -> Float[Tensor, "batch reading"]:
        """What stands on top."""
        ...

    def after(self, actions: Float[Tensor, "batch action"], value: Float[Tensor, "batch vector"]) -> "StackState":
        """The stack after one more step; ``actions`` as the network gives them, ``value`` ready to be pushed."""
        ...

    def select(self, indices: Int[Tensor, " chosen"]) -> "StackState":
        """The stacks of some members of the batch, in a new order."""
        ...


@dataclass(frozen=True)
class SuperpositionRows:
    """A superposition stack: one row for each step so far, the top first."""

    rows: Float[Tensor, "batch rows vector"]

    def reading(self) -> Tensor:
        """The first row; zeros where there is none."""
        return self.rows[:, 0] if self.rows.shape[1] else self.rows.new_zeros(self.rows.shape[0], self.rows.shape[2])

    def after(self, actions: Tensor, value: Tensor) -> "SuperpositionRows":
        """One row more. Cost: O(t m)."""
        return SuperpositionRows(superposition_step(self.rows, torch.softmax(actions, -1), value))

    def select(self, indices: Tensor) -> "SuperpositionRows":
        """Some members of the batch."""
        return SuperpositionRows(self.rows.index_select(0, indices))


@dataclass(frozen=True)
class StratifiedItems:
    """A stratified stack: strengths and vectors of all steps so far, the top last."""

    strengths: Float[Tensor, "batch items"]
    values: Float[Tensor, "batch items vector"]

    def reading(self) -> Tensor:
        """One unit of strength from the top."""
        return (stratified_shares(self.strengths)[:, None] @ self.values)[:, 0]

    def after(self, actions: Tensor, value: Tensor) -> "StratifiedItems":
        """One item more. Cost: O(t m)."""
        strengths = stratified_step(self.strengths, torch.sigmoid(actions))
        return StratifiedItems(strengths, torch.cat([self.values, value[:, None]], 1))

    def select(self, indices: Tensor) -> "StratifiedItems":
        """Some members of the batch."""
        return StratifiedItems(self.strengths.index_select(0, indices), self.values.index_select(0, indices))


@dataclass(frozen=True)
class NondeterministicRuns:
    """A nondeterministic stack, whose actions are laid out as ``RecurrentStack`` says."""

    stack: RecurrentStack
    state: NondeterministicStackState

    def reading(self) -> Tensor:
        """Expected top vectors, state major, then symbol, then vector."""
        return self.state.reading.flatten(1)

    def after(self, actions: Tensor, value: Tensor) -> "NondeterministicRuns":
        """One step more. Cost: O(t^2 Q^3 S)."""
        _, state = nondeterministic_stack_step(*self.stack.transitions(actions), value, self.state)
        return NondeterministicRuns(self.stack, state)

    def select(self, indices: Tensor) -> "NondeterministicRuns":
        """Some members of the batch."""
        return NondeterministicRuns(self.stack, self.state.select(indices))


def empty_stack(
    stack: RecurrentStack, bottom: Float[Tensor, " vector"], batch_size: int, implementation: Implementation = "auto"
) -> StackState:
    """The stack before the first step.

    Args:
        stack: its kind and sizes.
        bottom: the vector at the bottom of a nondeterministic stack; of the others only dtype and device are taken.
        batch_size: B.
        implementation: of the nondeterministic stack's steps.
    """
    nothing = bottom.new_zeros(batch_size, 0, stack.vector)
    match stack.name:
        case "superposition":
            return SuperpositionRows(nothing)
        case "stratified":
            return StratifiedItems(nothing[..., 0], nothing)
        case "nondeterministic":
            state = nondeterministic_stack_initial_state(
                bottom, batch_size, stack.states, stack.symbols, window=stack.window, implementation=implementation
            )
            return NondeterministicRuns(stack, state)
