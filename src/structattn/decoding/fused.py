"""Translation models whose decoder runs in one kernel call for each step, where the kernel has all of its layers."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention import CrossSoftmaxAttention, SoftmaxAttention
from structattn.attention.cache import KeyValueCache
from structattn.decoding.stepper import DecodingStart, Stepper
from structattn.models import EncoderDecoder
from structattn.models.block import Block, FeedForward
from structattn.models.embedding import Embedding
from structattn.models.layers import LayersState
from structattn.operators.decoder_layers import (
    LayerWeights,
    Memory,
    PackedLayers,
    decoder_layers,
    has_decoder_layers,
    pack_layers,
)
from structattn.operators.linear import current_precision


@dataclass(frozen=True)
class FusedState:
    """The number of positions so far, their keys and values in all layers, and the memory: an immutable value."""

    position: int
    cache: KeyValueCache
    memory: Memory

    def select(self, indices: Int[Tensor, " selected"]) -> "FusedState":
        """Return the states of some members of the batch, in a new order."""
        lengths = self.memory.lengths
        memory = Memory(
            self.memory.keys,
            self.memory.values,
            self.memory.row_indices.index_select(0, indices),
            None if lengths is None else lengths.index_select(0, indices),
        )
        return FusedState(self.position, self.cache.select(indices), memory)


@dataclass(frozen=True)
class FusedDecoder:
    """A ``Stepper`` that gives the same logits as the model's ``step``, up to rounding."""

    model: EncoderDecoder
    packed: PackedLayers

    def step(
        self, tokens: Int[Tensor, " batch"], state: FusedState
    ) -> tuple[Float[Tensor, "batch classes"], FusedState]:
        """Take one more token of each sentence; return the logits of the next one and the new state."""
        embedding: Any = self.model.target
        cache = state.cache.extend()
        x = embedding.embed_step(tokens, state.position)
        x = decoder_layers(self.packed, x, cache.rows, cache.row_indices, state.memory)
        return self.model.logits(self.model.decoder.final(x)), FusedState(state.position + 1, cache, state.memory)


def fuse(model: Stepper, start: DecodingStart) -> tuple[Stepper, DecodingStart]:
    """Return a faster model with its start, where the kernel has all layers of the decoder; the arguments elsewhere.

    The kernel is for float32 models on a CPU in evaluation mode, without gradients. Weights are laid out once for
    each search, in addition to the model's own.
    """
    state = start.state
    if not (type(model) is EncoderDecoder and isinstance(state, LayersState) and state.position == 0):
        return model, start
    if not (_can_run(model) and all(_has_layer(block) for block in model.decoder.blocks) and _alike(model)):
        return model, start
    crosses = [block.cross for block in state.blocks]
    keys, values = ([cross.rows[part].flatten(1) for cross in crosses] for part in (0, 1))
    if len({rows.stride() for rows in (*keys, *values)}) > 1 or keys[0].stride(1) != 1:
        keys, values = ([rows.contiguous() for rows in of_layers] for of_layers in (keys, values))
    memory = Memory(keys, values, crosses[0].row_indices, crosses[0].lengths)
    cache = KeyValueCache.of_size(len(start.tokens), [(2, keys[0].shape[1])] * len(keys), keys[0])
    return FusedDecoder(model, _packed_layers(model)), DecodingStart(FusedState(0, cache, memory), start.tokens)


def _can_run(model: EncoderDecoder) -> bool:
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    plain = all(
        parameter.device.type == "cpu" and parameter.dtype == torch.float32 and not parameter.is_inference()
        for parameter in model.parameters()
    )
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in model.decoder.modules())
    fits = plain and not hooked and not model.training and type(model.target) is Embedding
    return fits and current_precision() == "float32" and has_decoder_layers()


def _has_layer(block: Block) -> bool:
    own, cross, feedforward = block.attention, block.cross, block.feedforward
    if block.stack is not None or own is None or cross is None or feedforward is None:
        return False
    if not (type(own.layer) is SoftmaxAttention and type(cross.layer) is CrossSoftmaxAttention):
        return False
    normed = all(type(part.norm) is nn.LayerNorm and part.norm.bias is not None for part in (own, cross, feedforward))
    return normed and type(feedforward.layer) is FeedForward and own.layer.positions is None


def _alike(model: EncoderDecoder) -> bool:
    """Return whether all layers have the same sizes and placements of norms."""
    kinds = set()
    for block in model.decoder.blocks:
        parts = (block.attention, block.cross, block.feedforward)
        heads = block.attention.layer.projection.num_heads, block.cross.layer.query.num_heads
        placements = tuple((part.norm_placement, part.norm.eps) for part in parts)
        kinds.add((heads, placements, len(block.feedforward.layer.hidden.weight)))
    return len(kinds) == 1 and len(set(next(iter(kinds))[1])) == 1


def _packed_layers(model: EncoderDecoder) -> PackedLayers:
    """Return the packed weights. They are not kept: fused optimizers change weights without a new version of them."""
    first = model.decoder.blocks[0]
    heads = first.attention.layer.projection.num_heads, first.cross.layer.query.num_heads
    pre_norm, epsilon = first.attention.norm_placement == "pre", first.attention.norm.eps
    return pack_layers([_weights(block) for block in model.decoder.blocks], *heads, pre_norm, epsilon)


def _weights(block: Any) -> LayerWeights:
    own, cross, feedforward = block.attention, block.cross, block.feedforward
    return LayerWeights(
        own_projection=_linear(own.layer.projection),
        own_output=_linear(own.layer.output),
        own_norm=(own.norm.weight, own.norm.bias),
        cross_query=_linear(cross.layer.query),
        cross_output=_linear(cross.layer.output),
        cross_norm=(cross.norm.weight, cross.norm.bias),
        hidden=_linear(feedforward.layer.hidden),
        output=_linear(feedforward.layer.output),
        feedforward_norm=(feedforward.norm.weight, feedforward.norm.bias),
    )


def _linear(module: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return module.weight, module.bias
