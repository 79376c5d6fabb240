"""Recurrent network: a cell, optionally with a stack, and what they read."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.models.lstm import autocast_lacks_lstm
from structattn.operators import (
    RecurrentStack,
    StackRnnState,
    stack_rnn,
    stack_rnn_initial_state,
    stack_rnn_step,
)
from structattn.operators.common.checks import checked_lengths, mask_padding
from structattn.operators.common.implementation import Implementation
from structattn.operators.stack_rnn import Cell, gate_factor
from structattn.support.shapes import Bool, Float, Int, Lengths
from structattn.support.special_tokens import BOS, FIRST_SYMBOL


class StackController(nn.Module):
    """What controls a stack: the projection to its actions and pushed vectors, and the vector at its bottom."""

    hidden_size: int
    stack: RecurrentStack | None
    stack_projection: nn.Linear | None
    bottom: nn.Parameter | None

    def control(self, stack: RecurrentStack | None) -> None:
        """Set what belongs to a stack, to None where there is none; called last: weights are drawn in this order."""
        self.stack = stack
        self.stack_projection = None if stack is None else nn.Linear(self.hidden_size, stack.action_size + stack.vector)
        has_bottom = stack is not None and stack.name == "nondeterministic"
        self.bottom = nn.Parameter(torch.zeros(stack.vector)) if stack is not None and has_bottom else None

    def stack_inputs(self, outputs: Float[Tensor, "*batch output"]) -> tuple[Tensor, Tensor]:
        """Return the action logits and the pushed vector of each step, given outputs without dropout.

        Raises:
            ValueError: there is no stack.
        """
        if self.stack is None or self.stack_projection is None:
            raise ValueError("this network has no stack")
        sizes = [self.stack.action_size, self.stack.vector]
        actions, values = self.stack_projection(outputs[..., : self.hidden_size]).split_with_sizes(sizes, dim=-1)
        return actions, self.stack.pushed_vector(values)

    def bottom_vector(self) -> Float[Tensor, " vector"]:
        """Return the vector at the bottom; zeros for a stack without one, a single zero without a stack."""
        if self.bottom is not None:
            return torch.sigmoid(self.bottom)
        return next(self.parameters()).new_zeros(1 if self.stack is None else self.stack.vector)


class Recurrence(StackController):
    """h_t, c_t = cell(W x_t + b + U [h_{t-1}; r_{t-1}], c_{t-1}) (DuSell & Chiang 2024, section 6).

    r is the reading of a stack whose actions and pushed vectors are V h_t + b'; the bottom vector of a nondeterministic
    stack is sigmoid(w). Without a stack r is absent. There is one bias vector, where torch's cells have two.

    G (I + U + R + 1) parameters with G = 4 U for an LSTM and U for an Elman cell; a stack adds (U + 1)(A + m), and a
    nondeterministic stack m more.

    Args:
        input_size: I, the size of x.
        hidden_size: U.
        cell: "lstm", or an Elman cell by its activation, "tanh" or "relu".
        stack: the stack; None: none.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell: Cell = "lstm",
        stack: RecurrentStack | None = None,
    ) -> None:
        super().__init__()
        gates = gate_factor(cell) * hidden_size
        self.hidden_size, self.cell = hidden_size, cell
        self.input = nn.Linear(input_size, gates)
        self.recurrent = nn.Linear(hidden_size + (0 if stack is None else stack.reading_size), gates, bias=False)
        self.control(stack)

    def forward(
        self, x: Float[Tensor, "batch time size"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time units"]:
        """Process whole sequences. Cost: O(T G (I + U + R)), plus that of the stack."""
        if self.stack is None or self.stack_projection is None:
            x = mask_padding(x, lengths)
            if torch.compiler.is_compiling():
                return mask_padding(self._stepwise(x), lengths)
            start = self.initial_hidden(x.shape[0])
            return mask_padding(hidden_states(self.cell, self.input, self.recurrent, start, x), lengths)
        gates = self.input(mask_padding(x, lengths))
        maps = self.recurrent.weight, self.stack_projection.weight, self.stack_projection.bias
        return stack_rnn(gates, *maps, self.bottom_vector(), cell=self.cell, stack=self.stack, lengths=lengths)

    def initial_state(self, batch_size: int, implementation: Implementation = "auto") -> StackRnnState:
        """Return zeros and an empty stack."""
        return stack_rnn_initial_state(self.bottom_vector(), batch_size, self.hidden_size, self.stack, implementation)

    def initial_hidden(self, batch_size: int) -> Float[Tensor, "batch units"]:
        """Return the hidden state before the first step, 0."""
        return self.recurrent.weight.new_zeros(batch_size, self.hidden_size)

    def step(self, x_t: Float[Tensor, "batch size"], state: StackRnnState) -> StackRnnState:
        """Process one position; return the new state, with the output ``state.hidden``."""
        heads, bias = (
            (None, None)
            if self.stack_projection is None
            else (self.stack_projection.weight, self.stack_projection.bias)
        )
        return stack_rnn_step(self.input(x_t), self.recurrent.weight, heads, bias, state, self.cell, self.stack)

    def _stepwise(self, x: Tensor) -> Tensor:
        state, hiddens = self.initial_state(x.shape[0]), [F.linear(x[:, :0], self.input.weight[: self.hidden_size])]
        for x_t in x.unbind(1):
            state = self.step(x_t, state)
            hiddens.append(state.hidden[:, None])
        return torch.cat(hiddens, dim=1)


def hidden_states(
    cell: Cell, inputs: nn.Linear, recurrent: nn.Linear, start: Float[Tensor, "batch units"], x: Tensor
) -> Float[Tensor, "batch time units"]:
    """Return the hidden states of a layer without a stack, by torch's networks, which dynamo cannot trace.

    Cost: O(T G (I + U)). In the dtype of the weights where autocast's has no LSTM here.

    Args:
        cell: its cell.
        inputs: from its inputs to the gates.
        recurrent: from its last hidden state to the gates.
        start: h_0; c_0 = 0.
        x: its inputs, (B, T, I).

    Raises:
        ValueError: the inputs have another width.
    """
    if x.shape[2] != inputs.in_features:  # the kernels of torch would read beyond the weights
        raise ValueError(f"the input has shape {tuple(x.shape)}; expected (B, T, {inputs.in_features})")
    if x.shape[0] == 0 or x.shape[1] == 0:
        return F.linear(x, inputs.weight[: start.shape[1]])
    if cell == "lstm" and autocast_lacks_lstm(x.device):
        with torch.autocast(x.device.type, enabled=False):
            return hidden_states(cell, inputs, recurrent, start, x.to(inputs.weight.dtype))
    weights = [inputs.weight, recurrent.weight, inputs.bias, torch.zeros_like(inputs.bias)]
    if x.is_cuda:  # in one piece, as cuDNN wants them: it would copy them itself, with a warning
        parts = torch.cat([each.flatten() for each in weights]).split_with_sizes([each.numel() for each in weights])
        weights = [part.view_as(each) for part, each in zip(parts, weights, strict=True)]
    first, keeps = start[None].to(x.dtype), torch.is_grad_enabled()  # what the backward pass needs
    options = True, 1, 0.0, keeps, False, True  # bias, layers, dropout, training, bidirectional, batch first
    if cell == "lstm":
        return torch.lstm(x, (first, torch.zeros_like(first)), weights, *options)[0]
    return (torch.rnn_tanh if cell == "tanh" else torch.rnn_relu)(x, first, weights, *options)[0]


class OneHot(nn.Module):
    """One-hot encoding of V symbols; zeros for <pad>, <bos> and <eos>.

    Args:
        vocabulary_size: number of ids, V + 3.
    """

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        if vocabulary_size < FIRST_SYMBOL:
            raise ValueError(f"vocabulary_size={vocabulary_size}; expected at least 3: <pad>, <bos> and <eos>")
        self.size = vocabulary_size - FIRST_SYMBOL
        self.register_buffer("one", torch.ones(()), persistent=False)  # holds the dtype and device

    def forward(self, tokens: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time symbols"]:
        """Return the encoding of each token."""
        symbols = torch.arange(FIRST_SYMBOL, FIRST_SYMBOL + self.size, device=tokens.device)
        return (tokens[..., None] == symbols).to(self.get_buffer("one").dtype)


@dataclass(frozen=True)
class InputWithoutBos:
    """Input tokens without a leading <bos>, which corresponds to the state before the first step.

    Args:
        tokens: T' per sequence; undefined past each length.
        lengths: number of tokens per sequence; None: no padding.
        has_bos: whether a <bos> was removed; one value for all, or one per sequence.
    """

    tokens: Int[Tensor, "batch read"]
    lengths: Lengths
    has_bos: bool | Bool[Tensor, " batch"]

    def restore_bos(
        self, hiddens: Float[Tensor, "batch read units"], initial: Float[Tensor, "batch units"]
    ) -> Float[Tensor, "batch time units"]:
        """Insert the initial hidden state at the position of each removed <bos>."""
        if self.has_bos is False:
            return hiddens
        whole = torch.cat([initial[:, None].to(hiddens.dtype), hiddens], dim=1)
        if self.has_bos is True:
            return whole
        time = hiddens.shape[1]
        positions = torch.arange(time, device=hiddens.device) + (~self.has_bos).long()[:, None]
        return whole.take_along_dim(positions[..., None], dim=1)


def remove_bos(tokens: Int[Tensor, "batch time"], lengths: Lengths) -> InputWithoutBos:
    """Remove a leading <bos> from the sequences that have one.

    Raises:
        ValueError: lengths are not integers (B,), or outside 0..T.
    """
    if lengths is not None:
        lengths = checked_lengths(lengths, tokens.shape[0], tokens.shape[1], tokens.device)
    if tokens.shape[1] == 0:
        return InputWithoutBos(tokens, lengths, has_bos=False)
    has_bos = tokens[:, 0] == BOS
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        if bool(has_bos.all()):
            return InputWithoutBos(tokens[:, 1:], None if lengths is None else (lengths - 1).clamp(min=0), has_bos=True)
        if not bool(has_bos.any()):
            return InputWithoutBos(tokens, lengths, has_bos=False)
    time = tokens.shape[1]
    positions = (torch.arange(time, device=tokens.device) + has_bos.long()[:, None]).clamp(max=time - 1)
    ends = torch.full_like(tokens[:, 0], time) if lengths is None else lengths
    return InputWithoutBos(tokens.take_along_dim(positions, dim=1), (ends - has_bos.long()).clamp(min=0), has_bos)
