"""Initial weights of transformers, and of LSTMs and RNNs."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from structattn.attention import SelfInitialized, XavierInitialized
from structattn.models.block import Block, FeedForward
from structattn.models.characters.embedding import SpelledEmbedding
from structattn.models.embedding import Embedding
from structattn.models.recurrent.language_model import RecurrentLanguageModel
from structattn.models.recurrent.recurrence import Recurrence

WeightRule = Literal["uniform", "xavier", "lecun"]
EmbeddingRule = Literal["uniform", "normal", "scaled_normal", "truncated_normal"]


@torch.no_grad()
def initialize_transformer(
    model: nn.Module, scale: float, weights: WeightRule = "uniform", embedding: EmbeddingRule = "uniform"
) -> None:
    """Draw all weights from torch's global generator.

    The rules for weights:
    "uniform" is that of DuSell & Chiang (2024), appendix D.2: Xavier's uniform rule, with biases 0, for the projections
    of stack layers, the feed-forward maps in the same block (the hidden one with the gain of ReLU, sqrt(2)) and an
    untied output layer; ones and zeros for layer norms; U(-scale, scale) for everything else: embeddings,
    softmax attention with its feed-forward maps, biases there, and the vector at the bottom of a stack. With any rule,
    ``SelfInitialized`` layers draw what is particular to them.
    "xavier" (You et al. 2020) is Xavier's rule for all linear maps, "lecun" (Haiku's default, used by Li et al. 2024)
    N(0, 1 / inputs) truncated at two standard deviations; both with biases 0, and module defaults for the rest.

    The rules for embeddings of d numbers: "uniform" U(-scale, scale); "normal" N(0, 1), torch's default;
    "scaled_normal" N(0, 1 / d); "truncated_normal" N(0, 0.02^2) truncated at two standard deviations. With N(0, 1)
    embeddings are initially larger than positions, and small models learn much faster: see docs/initialization.md.

    Args:
        model: a transformer of this package; ``model.output`` is its output layer, if not tied.
        scale: bound of the uniform rules.
        weights: the rule for all but the embeddings.
        embedding: the rule for embeddings.
    """
    if weights == "uniform":
        _init_uniform(model, scale)
    else:
        for module in model.modules():
            _init_linear_children(module, weights)
    for module in model.modules():
        if isinstance(module, Embedding | SpelledEmbedding) and (weights, embedding) != ("uniform", "uniform"):
            _init_embedding(module.table.weight, embedding, scale)
    if weights == "uniform" and isinstance(model.output, nn.Linear):
        _init_linear(model.output)


def _init_uniform(model: nn.Module, scale: float) -> None:
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -scale, scale)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, Block):
            _init_stacks(module)
        elif isinstance(module, SelfInitialized):
            module.initialize_own()


def _init_stacks(block: Block) -> None:
    """Xavier's rule for stack attention, and for the feed-forward maps of blocks where it replaces self-attention."""
    for sublayer in (block.attention, block.stack):
        if sublayer is None or not isinstance(sublayer.layer, XavierInitialized):
            continue
        for matrix in sublayer.layer.xavier_matrices():
            nn.init.xavier_uniform_(matrix)
        if sublayer is block.attention and block.feedforward is not None:
            _init_linear(block.feedforward.layer.hidden, math.sqrt(2))
            _init_linear(block.feedforward.layer.output)


def _init_linear_children(module: nn.Module, weights: WeightRule) -> None:
    """Initialise the linear maps that are direct children; concatenated projections count as one matrix."""
    for child in module.children():
        if isinstance(child, nn.Linear):
            is_hidden = isinstance(module, FeedForward) and child is module.hidden
            _init_linear(child, math.sqrt(2) if is_hidden else 1.0, weights)


def _init_linear(linear: nn.Linear, gain: float = 1.0, weights: WeightRule = "xavier") -> None:
    if weights == "lecun":
        truncated_normal(linear.weight, 1 / math.sqrt(linear.in_features))
    else:
        nn.init.xavier_uniform_(linear.weight, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def _init_embedding(table: Tensor, embedding: EmbeddingRule, scale: float) -> None:
    if embedding == "uniform":
        nn.init.uniform_(table, -scale, scale)
    elif embedding == "truncated_normal":
        truncated_normal(table, 0.02)
    else:
        nn.init.normal_(table, std=1.0 if embedding == "normal" else table.shape[1] ** -0.5)


def truncated_normal(tensor: Tensor, deviation: float) -> None:
    """Draw from N(0, deviation²) truncated at two standard deviations."""
    nn.init.trunc_normal_(tensor, std=deviation, a=-2 * deviation, b=2 * deviation)


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
                _lecun(linear)
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


def _lecun(linear: nn.Linear) -> None:
    _lecun_matrices(linear.weight)
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
