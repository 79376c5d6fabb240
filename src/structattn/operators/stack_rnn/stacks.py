"""Cells and stacks of a recurrent network, without kernels."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from structattn.operators.nondeterministic_stack.arguments import split_logits
from structattn.support.shapes import Float

Cell = Literal["lstm", "tanh", "relu"]
CELLS: tuple[Cell, ...] = ("lstm", "tanh", "relu")


def gate_factor(cell: Cell) -> int:
    """Return the number of gates per hidden unit: 4 for an LSTM (i, f, g, o), otherwise 1.

    Raises:
        ValueError: the cell is unknown.
    """
    if cell not in CELLS:
        raise ValueError(f"cell={cell!r}; expected one of {CELLS}")
    return 4 if cell == "lstm" else 1


def next_hidden(
    cell: Cell, gates: Float[Tensor, "batch gates"], memory: Float[Tensor, "batch units"]
) -> tuple[Float[Tensor, "batch units"], Float[Tensor, "batch units"]]:
    """Return the hidden state and the cell state after one step.

    lstm: c_t = σ(f) c_{t-1} + σ(i) tanh(g), h_t = σ(o) tanh(c_t) (Hochreiter & Schmidhuber 1997, with forget gates;
    torch's order of the gates, i, f, g, o). tanh, relu: h_t = tanh or relu of the numbers (Elman 1990), and the memory
    is h_t, too.
    """
    if cell == "lstm":
        enter, keep, candidate, out = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(out) * torch.tanh(memory), memory
    hidden = torch.tanh(gates) if cell == "tanh" else torch.relu(gates)
    return hidden, hidden


StackName = Literal["superposition", "nondeterministic", "stratified"]
Pushed = Literal["sigmoid", "tanh", "exp", "none"]

STACKS: tuple[StackName, ...] = ("superposition", "nondeterministic", "stratified")
PUSHED: tuple[Pushed, ...] = ("sigmoid", "tanh", "exp", "none")


@dataclass(frozen=True)
class RecurrentStack:
    """Kind and sizes of a stack, with the activations of its actions and pushed vector.

    superposition: softmax of three logits, the probabilities of push, no-op and pop (Joulin & Mikolov 2015).
    nondeterministic: the log-weights of all transitions, for each state q and top symbol
    x in the order push (r, y), replace (r, y), pop (r) (DuSell & Chiang 2023).
    stratified: the logistic function of two numbers, the strengths of push and pop (Grefenstette et al. 2015).

    Args:
        vector: m, the size of a pushed vector.
        states: Q, of the nondeterministic stack.
        symbols: S, of the nondeterministic stack, the bottom symbol included.
        pushed: activation of the pushed vector.
        window: how many steps after its push an item of the nondeterministic stack can be popped; None: no limit.
        depth: the number of vectors that the superposition stack holds; a push on a full stack drops the lowest, and a
            pop leaves zeros there (Delétang et al. 2023); None: no limit.

    Raises:
        ValueError: a name is unknown or a size less than 1.
    """

    name: StackName
    vector: int
    states: int = 1
    symbols: int = 1
    pushed: Pushed = "sigmoid"
    window: int | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.name not in STACKS:
            raise ValueError(f"name={self.name!r}; expected one of {STACKS}")
        if self.pushed not in PUSHED:
            raise ValueError(f"pushed={self.pushed!r}; expected one of {PUSHED}")
        limits = [limit for limit in (self.window, self.depth) if limit is not None]
        if min(self.vector, self.states, self.symbols, *limits) < 1:
            raise ValueError(f"{self}: sizes must be at least 1")

    @property
    def action_size(self) -> int:
        """Return A, the number of action logits of a step."""
        targets = self.states * self.symbols
        sizes = {"superposition": 3, "stratified": 2, "nondeterministic": targets * (2 * targets + self.states)}
        return sizes[self.name]

    @property
    def reading_size(self) -> int:
        """Return R, the size of a reading."""
        return self.states * self.symbols * self.vector if self.name == "nondeterministic" else self.vector

    def pushed_vector(self, numbers: Tensor) -> Tensor:
        """Apply the activation of the pushed vector."""
        match self.pushed:
            case "sigmoid":
                return torch.sigmoid(numbers)
            case "tanh":
                return torch.tanh(numbers)
            case "exp":
                return torch.exp(numbers)
        return numbers

    def transitions(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split action logits (..., A) into push and replace (..., Q, S, Q, S) and pop (..., Q, S, Q)."""
        return split_logits(logits, self.states, self.symbols)
