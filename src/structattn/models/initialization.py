"""Initial weights."""

import math
from typing import Literal

import torch
from torch import nn

from structattn.models.block import Block
from structattn.models.language_model import LanguageModel


@torch.no_grad()
def initialize_language_model(
    model: LanguageModel, scale: float, embedding: Literal["uniform", "normal"] = "uniform"
) -> None:
    """Draw all weights as DuSell & Chiang (2024), appendix D.2, from torch's global generator.

    Xavier's uniform rule, with biases 0, for the projections of stack layers, the feed-forward maps beside them (the
    hidden one with the gain of ReLU, sqrt(2)) and the output layer where it is not tied; ones and zeros for layer
    norms; U(-scale, scale) for everything else: embeddings, softmax attention with its feed-forward maps, biases there,
    and the vector at the bottom of a stack.

    Embeddings may be drawn from N(0, 1) instead, torch's own choice. Then the identity of a token outweighs its
    position from the start, and small models learn much sooner; docs/initialization.md has the figures.
    """
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -scale, scale)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, Block):
            _initialize_stack_layer(module)
    if embedding == "normal":
        nn.init.normal_(model.embedding.weight)
    if model.output is not None:
        _initialize_map(model.output)


def _initialize_stack_layer(block: Block) -> None:
    matrices = block.attention.fully_connected()
    if not matrices:
        return
    for matrix in matrices:
        nn.init.xavier_uniform_(matrix)
    _initialize_map(block.feedforward.hidden, math.sqrt(2))
    _initialize_map(block.feedforward.output)


def _initialize_map(linear: nn.Linear, gain: float = 1.0) -> None:
    nn.init.xavier_uniform_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
