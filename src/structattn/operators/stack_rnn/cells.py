"""Recurrent cells: LSTM and Elman."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

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
