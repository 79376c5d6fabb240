"""Initial weights of recurrent models."""

import torch
from torch import nn

from structattn.models.recurrent.language_model import RecurrentLanguageModel


@torch.no_grad()
def initialize_recurrent(model: RecurrentLanguageModel, scale: float) -> None:
    """Draw all weights from torch's global generator, as DuSell & Chiang (2024, appendix D.2) do.

    Xavier's uniform rule, with biases 0, for the output layer and for the projections to the actions and the pushed
    vectors of a superposition or stratified stack; U(-scale, scale) for everything else: the cell's weights and biases,
    embeddings, the bottom vector of a nondeterministic stack, and the projections to its actions and vectors, where
    their code differs from their text.
    """
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -scale, scale)
    _xavier(model.output)
    projection, stack = model.recurrence.stack_projection, model.recurrence.stack
    if projection is not None and stack is not None and stack.name != "nondeterministic":
        _xavier(projection, stack.action_size, stack.vector)


def _xavier(linear: nn.Linear, *parts: int) -> None:
    """Xavier's rule, for each of the row blocks ``parts`` separately."""
    for matrix in torch.split(linear.weight, list(parts) or linear.out_features):
        nn.init.xavier_uniform_(matrix)
    nn.init.zeros_(linear.bias)
