"""Initial weights of recurrent models."""

from typing import Literal

import torch
from torch import Tensor, nn

from structattn.models.initialization import truncated_normal
from structattn.models.recurrent.language_model import RecurrentLanguageModel
from structattn.models.recurrent.recurrence import Recurrence

RecurrentWeightRule = Literal["uniform", "xavier", "xavier_actions", "lecun"]


@torch.no_grad()
def initialize_recurrent(model: RecurrentLanguageModel, scale: float, weights: RecurrentWeightRule = "uniform") -> None:
    """Draw all weights from torch's global generator.

    "uniform" is the rule of the code of DuSell & Chiang (2024): Xavier's uniform rule, with biases 0, for the output
    layer and for the projections to the actions and the pushed vectors of a superposition or stratified stack;
    U(-scale, scale) for everything else: the cell's weights and biases, embeddings, the bottom vector of a
    nondeterministic stack, and the projections to its actions and vectors.
    "xavier" is the rule of their text (appendix D.2): Xavier's rule also for the projections to a nondeterministic
    stack.
    "xavier_actions" is the rule of the code of DuSell & Cotterell (2025): Xavier's rule for the projection to the
    actions of a nondeterministic stack, but not for that to its vectors.
    "lecun" is that of Haiku's layers, used by Li et al. (2024): N(0, 1 / inputs) truncated at two standard deviations
    for all linear maps, with biases 0, but 1 for the forget gates; U(-scale, scale) for the rest.
    """
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -scale, scale)
    projection, stack = model.recurrence.stack_projection, model.recurrence.stack
    if weights == "lecun":
        assert isinstance(model.recurrence, Recurrence)  # the settings say so
        _lecun_cell(model.recurrence)
        for linear in (model.output, projection):
            if isinstance(linear, nn.Linear):
                _lecun_matrices(linear.weight)
                nn.init.zeros_(linear.bias)
        return
    if isinstance(model.output, nn.Linear):
        _xavier(model.output)
    if projection is None or stack is None:
        return
    if weights == "xavier" or stack.name != "nondeterministic":
        _xavier(projection, stack.action_size, stack.vector)
    elif weights == "xavier_actions":
        nn.init.xavier_uniform_(projection.weight[: stack.action_size])
        nn.init.zeros_(projection.bias[: stack.action_size])


def _xavier(linear: nn.Linear, *parts: int) -> None:
    """Xavier's rule, for each of the row blocks ``parts`` separately."""
    for matrix in torch.split(linear.weight, list(parts) or linear.out_features):
        nn.init.xavier_uniform_(matrix)
    nn.init.zeros_(linear.bias)


def _lecun_cell(network: Recurrence) -> None:
    """Haiku's LSTM has one matrix for [x; r; h], its Elman network one for [x; r] and one for h."""
    hidden, reading = network.recurrent.weight.tensor_split([network.hidden_size], dim=1)
    if network.cell == "lstm":
        _lecun_matrices(network.input.weight, reading, hidden)
    else:
        _lecun_matrices(network.input.weight, reading)
        _lecun_matrices(hidden)
    nn.init.zeros_(network.input.bias)
    if network.cell == "lstm":
        nn.init.ones_(network.input.bias.chunk(4)[1])


def _lecun_matrices(*columns: Tensor) -> None:
    """N(0, 1 / inputs), truncated, for the column blocks of one matrix."""
    inputs = sum(block.shape[1] for block in columns)
    for block in columns:
        truncated_normal(block, inputs**-0.5)
