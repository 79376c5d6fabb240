"""Which stack a recurrent network has."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

StackName = Literal["superposition", "nondeterministic", "stratified"]
Pushed = Literal["sigmoid", "tanh", "exp", "none"]

STACKS: tuple[StackName, ...] = ("superposition", "nondeterministic", "stratified")
PUSHED: tuple[Pushed, ...] = ("sigmoid", "tanh", "exp", "none")


@dataclass(frozen=True)
class RecurrentStack:
    """A stack, and how the numbers that a network gives become its actions and its pushed vector.

    superposition: softmax of three numbers, the probabilities of push, no-op and pop (Joulin & Mikolov 2015).
    nondeterministic: the numbers are the logarithms of the weights of all transitions, for each state q and top symbol
    x in the order push (r, y), replace (r, y), pop (r) (DuSell & Chiang 2022, 2024).
    stratified: the logistic function of two numbers, the strengths of push and pop (Grefenstette et al. 2015).

    Args:
        name: the kind of stack.
        vector: m, the size of a pushed vector.
        states: Q, of the nondeterministic stack.
        symbols: S, of the nondeterministic stack, the bottom symbol included.
        pushed: what makes a pushed vector of m numbers.
        window: how many steps after its push an item of the nondeterministic stack can be popped; None: for ever.

    Raises:
        ValueError: a name is unknown or a size less than 1.
    """

    name: StackName
    vector: int
    states: int = 1
    symbols: int = 1
    pushed: Pushed = "sigmoid"
    window: int | None = None

    def __post_init__(self) -> None:
        if self.name not in STACKS:
            raise ValueError(f"name={self.name!r}; expected one of {STACKS}")
        if self.pushed not in PUSHED:
            raise ValueError(f"pushed={self.pushed!r}; expected one of {PUSHED}")
        if min(self.vector, self.states, self.symbols, self.window or 1) < 1:
            raise ValueError(f"{self}: sizes must be at least 1")

    @property
    def action_size(self) -> int:
        """A, how many numbers decide on a step."""
        targets = self.states * self.symbols
        sizes = {"superposition": 3, "stratified": 2, "nondeterministic": targets * (2 * targets + self.states)}
        return sizes[self.name]

    @property
    def reading_size(self) -> int:
        """R, how many numbers a reading has."""
        return self.states * self.symbols * self.vector if self.name == "nondeterministic" else self.vector

    def pushed_vector(self, numbers: Tensor) -> Tensor:
        """The vector to push."""
        match self.pushed:
            case "sigmoid":
                return torch.sigmoid(numbers)
            case "tanh":
                return torch.tanh(numbers)
            case "exp":
                return torch.exp(numbers)
        return numbers

    def transitions(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Push and replace (..., Q, S, Q, S), pop (..., Q, S, Q) of a nondeterministic stack, from (..., A)."""
        targets, sizes = self.states * self.symbols, (self.states, self.symbols)
        rows = logits.view(*logits.shape[:-1], *sizes, 2 * targets + self.states)
        push, replace, pop = rows.split_with_sizes([targets, targets, self.states], dim=-1)
        shape = (*rows.shape[:-1], *sizes)
        return push.view(shape), replace.view(shape), pop
