"""Initial weights of transformers, and which parameters keep those that their constructors gave them."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from structattn.attention import SelfInitialized, XavierInitialized
from structattn.models.block import Block, FeedForward
from structattn.models.characters.embedding import SpelledEmbedding
from structattn.models.embedding import Embedding
from structattn.models.layers import Layers

WeightRule = Literal["uniform", "xavier", "lecun"]
EmbeddingRule = Literal["uniform", "normal", "scaled_normal", "truncated_normal"]
_NO_LAYERS = ("torch.nn.modules.module", "torch.nn.modules.container")


@torch.no_grad()
def initialize_transformer(
    model: nn.Module, scale: float, weights: WeightRule = "uniform", embedding: EmbeddingRule = "uniform"
) -> None:
    """Draw all weights from torch's global generator.

    The rules for weights:
    "uniform" is that of DuSell & Chiang (2024), appendix D.2: Xavier's uniform rule, with biases 0, for the projections
    of stack layers, the feed-forward maps in the same block (the hidden one with the gain of ReLU, sqrt(2)) and an
    untied output layer; ones and zeros for norms; U(-scale, scale) for everything else: embeddings,
    softmax attention with its feed-forward maps, biases there, and the vector at the bottom of a stack. With any rule,
    ``SelfInitialized`` layers draw what is particular to them.
    "xavier" (You et al. 2020) is Xavier's rule for all linear maps, "lecun" (Haiku's default, used by Li et al. 2024)
    N(0, 1 / inputs) truncated at two standard deviations; both with biases 0, and module defaults for the rest.

    The rules for embeddings of d numbers: "uniform" U(-scale, scale); "normal" N(0, 1), torch's default;
    "scaled_normal" N(0, 1 / d); "truncated_normal" N(0, 0.02^2) truncated at two standard deviations. With N(0, 1)
    embeddings are initially larger than positions, and small models learn much faster: see docs/initialization.md.

    With any rule, parameters that a module of another package, as a plugin is, owns itself, outside of the layers of
    torch.nn in it, keep what its constructor gave them. If it is ``SelfInitialized``, it is called last.

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
    initialize_foreign(model)


@torch.no_grad()
def initialize_foreign(model: nn.Module) -> None:
    """Let modules of other packages that are ``SelfInitialized`` set what they want to, in place of any rule."""
    for module in model.modules():
        if is_foreign(module) and isinstance(module, SelfInitialized):
            module.initialize_own()


def is_foreign(module: nn.Module) -> bool:
    """Return whether a module's class is neither of this package nor of torch nor derived from a layer of torch.nn."""
    if type(module).__module__.partition(".")[0] in ("structattn", "torch"):
        return False
    homes = (base.__module__ for base in type(module).__mro__)
    return not any(home.startswith("torch.nn.modules.") and home not in _NO_LAYERS for home in homes)


def _init_uniform(model: nn.Module, scale: float) -> None:
    kept = {id(parameter) for parameter in _constructed_parameters(model)}
    for parameter in model.parameters():
        if id(parameter) not in kept:
            nn.init.uniform_(parameter, -scale, scale)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm):
            module.reset_parameters()
        elif isinstance(module, Block):
            _init_stacks(module)
        elif isinstance(module, Layers) and isinstance(module, XavierInitialized):  # with stacks over depth
            for matrix in module.xavier_matrices():
                nn.init.xavier_uniform_(matrix)
        elif isinstance(module, SelfInitialized) and not is_foreign(module):  # others are the last
            module.initialize_own()


def _constructed_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that keep what their constructors gave them, as no rule for initial weights knows them.

    They belong to modules that are foreign: to these themselves, or to a ``ParameterList`` or ``ParameterDict`` of
    theirs.
    """
    for module in filter(is_foreign, model.modules()):
        lists = (child for child in module.children() if isinstance(child, nn.ParameterList | nn.ParameterDict))
        for owner in (module, *lists):
            yield from owner.parameters(recurse=False)


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
