"""Recurrent network of several layers with a stack, whose reading may be joined to the output."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from structattn.models.recurrent.recurrence import StackController, hidden_states
from structattn.operators.common.checks import mask_padding
from structattn.operators.common.dropout import checked_rate, dropout
from structattn.operators.common.implementation import Implementation
from structattn.operators.common.states import Selectable
from structattn.operators.stack_rnn import Cell, RecurrentStack, gate_factor
from structattn.operators.stack_rnn.stack_states import StackState, empty_stack
from structattn.operators.stack_rnn.stacks import next_hidden
from structattn.support.shapes import Float, Lengths


@dataclass(frozen=True)
class DeepState(Selectable):
    """State of the network after some steps: an immutable value, through which gradients flow.

    Args:
        hiddens: the hidden state of each layer.
        memories: the cell state of each layer of an LSTM; otherwise the hidden states.
        stack: the state of the stack; None without one.
        joined: whether the reading belongs to the output.
    """

    hiddens: tuple[Float[Tensor, "batch units"], ...]
    memories: tuple[Float[Tensor, "batch units"], ...]
    stack: StackState | None
    joined: bool

    @property
    def hidden(self) -> Float[Tensor, "batch output"]:
        """The output: the top layer's hidden state, and the reading if it is joined."""
        if self.stack is None or not self.joined:
            return self.hiddens[-1]
        return torch.cat([self.hiddens[-1], self.stack.reading()], -1)


class DeepRecurrence(StackController):
    """L recurrent layers over [x_t; r_{t-1}], where r is the reading of a stack that the top layer controls.

        h_t^1, c_t^1 = cell(W_1 x_t + b_1 + U_1 [h_{t-1}^1; r_{t-1}], c_{t-1}^1)
        h_t^l, c_t^l = cell(W_l Dropout(h_t^{l-1}) + b_l + U_l h_{t-1}^l, c_{t-1}^l)
        (a_t, v_t) = V h_t^L + b',  r_t the reading after action a_t with v_t
        output_t = Dropout(h_t^L), or with the reading joined Dropout([h_t^L; r_t])

    as in DuSell & Cotterell (2025). With ``learned_start`` h_0 = tanh(p), otherwise 0; c_0 = 0. Without a joined
    reading an action is seen by the output one step later. There is one bias vector for each layer.

    L U (if learned) + G (U + I + R + 1) + (L - 1) G (2 U + 1) parameters, U units, I inputs, R numbers of a reading,
    and G = 4 U for an LSTM, U otherwise; a stack adds (U + 1)(A + m), a nondeterministic stack m more. With a stack,
    whose reading the first layer waits for, each step is computed in torch, layer by layer; without, each layer is.

    Args:
        input_size: I.
        hidden_size: U.
        num_layers: L.
        cell: "lstm", or an Elman cell by its activation, "tanh" or "relu".
        stack: the stack; None: none.
        learned_start: whether h_0 is learned.
        joined: whether the reading belongs to the output, (U + R) instead of U.
        dropout: rate of inputs, between layers and of outputs.

    Raises:
        ValueError: there is no layer.
    """

    inputs: Any  # ModuleLists of Linear; torch gives their items no type
    recurrents: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        cell: Cell = "lstm",
        stack: RecurrentStack | None = None,
        *,
        learned_start: bool = False,
        joined: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers={num_layers}; expected at least 1")
        gates, reading = gate_factor(cell) * hidden_size, 0 if stack is None else stack.reading_size
        self.hidden_size, self.cell, self.dropout = hidden_size, cell, checked_rate(dropout)
        self.joined = joined and stack is not None
        inputs = [input_size, *[hidden_size] * (num_layers - 1)]
        recurrent = [hidden_size + reading, *[hidden_size] * (num_layers - 1)]
        self.inputs = nn.ModuleList(nn.Linear(size, gates) for size in inputs)
        self.recurrents = nn.ModuleList(nn.Linear(size, gates, bias=False) for size in recurrent)
        self.start = nn.Parameter(torch.zeros(num_layers, hidden_size)) if learned_start else None
        self.control(stack)

    @property
    def output_size(self) -> int:
        """The size of the output."""
        return self.hidden_size + (self.stack.reading_size if self.stack is not None and self.joined else 0)

    def forward(
        self, x: Float[Tensor, "batch time size"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time output"]:
        """Process whole sequences. Cost: O(T (L G U + G (I + R))), plus that of the stack's steps."""
        return mask_padding(self._dropped(self.undropped(x, lengths)), lengths)

    def undropped(
        self, x: Float[Tensor, "batch time size"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time output"]:
        """Return the outputs without their dropout, which the stack does not see; undefined at padding."""
        x = mask_padding(x, lengths)
        whole = self.stack is None and not torch.compiler.is_compiling()
        return self._by_layer(x) if whole else self._by_step(x)

    def _by_layer(self, x: Tensor) -> Tensor:
        """Return the outputs without their dropout: those of one layer after the other, which no stack joins."""
        starts = self.initial_state(x.shape[0]).hiddens
        for inputs, recurrent, start in zip(self.inputs, self.recurrents, starts, strict=True):
            x = hidden_states(self.cell, inputs, recurrent, start, self._dropped(x))
        return x

    def _by_step(self, x: Tensor) -> Tensor:
        """Return the outputs without their dropout: those of all layers, one step after the other."""
        gates = self.inputs[0](self._dropped(x))
        state, outputs = self.initial_state(x.shape[0]), [gates.new_zeros(x.shape[0], 0, self.output_size)]
        for gates_t in gates.unbind(1):
            state = self._after(gates_t, state)
            outputs.append(state.hidden[:, None])
        return torch.cat(outputs, 1)

    def initial_state(self, batch_size: int, implementation: Implementation = "auto") -> DeepState:
        """Return the state before the first step: the initial hidden states and an empty stack."""
        weight = self.recurrents[0].weight
        zeros = weight.new_zeros(batch_size, self.hidden_size)
        start = [zeros] * len(self.inputs) if self.start is None else torch.tanh(self.start)[:, None] + zeros
        stack = (
            None if self.stack is None else empty_stack(self.stack, self.bottom_vector(), batch_size, implementation)
        )
        return DeepState(tuple(start), (zeros,) * len(self.inputs), stack, self.joined)

    def step(self, x_t: Float[Tensor, "batch size"], state: DeepState) -> DeepState:
        """Process one position; return the new state, with the output ``state.hidden``, without its dropout."""
        return self._after(self.inputs[0](self._dropped(x_t)), state)

    def initial_hidden(self, batch_size: int) -> Float[Tensor, "batch output"]:
        """Return the output before the first step."""
        return self._dropped(self.initial_state(batch_size).hidden)

    def _after(self, gates: Tensor, state: DeepState) -> DeepState:
        """Return the state after a step, given what the input adds to the gates of the first layer."""
        hiddens: list[Tensor] = []
        memories: list[Tensor] = []
        for layer, (hidden, memory) in enumerate(zip(state.hiddens, state.memories, strict=True)):
            seen = hidden if layer or state.stack is None else torch.cat([hidden, state.stack.reading()], -1)
            if layer:
                gates = self.inputs[layer](self._dropped(hiddens[-1]))
            new_hidden, new_memory = next_hidden(self.cell, gates + self.recurrents[layer](seen), memory)
            hiddens.append(new_hidden)
            memories.append(new_memory)
        stack = None if state.stack is None else state.stack.after(*self.stack_inputs(hiddens[-1]))
        return DeepState(tuple(hiddens), tuple(memories), stack, self.joined)

    def _dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout) if self.training else x
