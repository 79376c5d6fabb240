"""Translation models whose decoder runs in one kernel call for each step, where the kernel has all of its layers."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention import CrossGaussianAttention, CrossSoftmaxAttention, GaussianAttention, SoftmaxAttention
from structattn.attention.cache import CrossAttentionCache, KeyValueCache
from structattn.decoding.candidates import Restriction, restrict
from structattn.decoding.fused_state import FusedState
from structattn.decoding.stepper import DecodingStart, Stepper
from structattn.models import EncoderDecoder
from structattn.models.block import Block, FeedForward, Residual
from structattn.models.embedding import Embedding
from structattn.models.layers import LayersState
from structattn.operators import gaussian_weights
from structattn.operators.decoder_layers import (
    CachedRows,
    Memory,
    PackedLayers,
    Sublayer,
    can_run_decoder_layers,
    decoder_layers,
    pack_sublayers,
)
from structattn.operators.gaussian_attention import Gaussians
from structattn.operators.linear import current_precision, keep_until_changed
from structattn.operators.linear.packed import Linear, packed_linear
from structattn.operators.linear.selected import selected_linear


@dataclass(frozen=True)
class FusedDecoder:
    """A ``Stepper`` that gives the same logits as the model's ``step``, up to rounding.

    Args:
        model: the model.
        packed: the weights of its decoder and of its output layer.
        hard_coded: the hard-coded heads of each sublayer; None where there are none.
    """

    model: EncoderDecoder
    packed: PackedLayers
    hard_coded: tuple[Gaussians | None, ...]

    def step(
        self, tokens: Int[Tensor, " batch"], state: FusedState
    ) -> tuple[Float[Tensor, "batch classes"], FusedState]:
        """Take one more token of each sentence; return the logits of the next one and the new state.

        Under a restriction, the columns are the candidates, as those of ``RestrictedStepper``.
        """
        embedding: Any = self.model.target
        cache = None if state.cache is None else self._needed(state.cache.extend())
        state = replace(state, cache=cache)
        indices = tokens.new_zeros(len(tokens), 0) if cache is None else cache.row_indices
        x = embedding.embed_step(tokens, state.position)
        x = decoder_layers(self.packed, x, list(self._cached_rows(state)), indices, state.memory)
        return self._logits(self.model.decoder.final(x), state.restriction), replace(state, position=state.position + 1)

    def _logits(self, x: Tensor, restriction: Restriction | None) -> Tensor:
        if restriction is None:
            return packed_linear(x, self.packed.output)
        return selected_linear(x, _output(self.model), restriction.lists, restriction.list_of_row)

    def _needed(self, cache: KeyValueCache) -> KeyValueCache:
        """Return the positions to which a later one may attend: not all of them if all heads are hard-coded."""
        count = 0
        for sublayer, gaussians in zip(self.packed.sublayers, self.hard_coded, strict=True):
            if sublayer.kind == "softmax":
                return cache
            if sublayer.kind == "gaussian" and gaussians is not None:
                count = max(count, gaussians.values_needed(torch.float32))
        return cache.last(count)

    def _cached_rows(self, state: FusedState) -> Iterator[CachedRows | None]:
        """Return what each sublayer attends to."""
        own = iter(() if state.cache is None else state.cache.rows[0].unbind(1))
        memories, weights = iter(state.memory_rows), _Weights(state)
        for sublayer, gaussians in zip(self.packed.sublayers, self.hard_coded, strict=True):
            across = sublayer.kind.startswith("cross")
            if sublayer.kind == "feedforward":
                yield None
            elif gaussians is not None:
                values = next(memories)[-1] if across else next(own)
                yield CachedRows(None, values, weights.of(gaussians, across))
            else:
                yield CachedRows(*next(memories)) if across else CachedRows(next(own), next(own))


@dataclass(frozen=True)
class _Weights:
    """The weights of hard-coded heads for the last position, computed once for all layers that have the same."""

    state: FusedState
    known: dict[tuple[Gaussians, bool], Tensor] = field(default_factory=dict)

    def of(self, gaussians: Gaussians, across: bool) -> Float[Tensor, "heads positions"]:
        """Return the weights of the positions so far, or of those of a memory."""
        if (gaussians, across) not in self.known:
            past = 0 if self.state.cache is None else self.state.cache.num_steps
            keys, first = (self.state.memory.size, self.state.position) if across else (past, past - 1)
            weights = gaussian_weights(**vars(gaussians), queries=1, keys=keys, first=first)
            self.known[gaussians, across] = weights[:, 0].contiguous()
        return self.known[gaussians, across]


def fuse(model: Stepper, start: DecodingStart) -> tuple[Stepper, DecodingStart]:
    """Return a faster model with its start, where the kernel has all layers of the decoder; the arguments elsewhere.

    The logits of both are those of the candidates of the start, if it has any.

    The kernel is for float32 models on a CPU in evaluation mode, without gradients; its products are in the precision
    that ``linear_precision`` sets. Weights are laid out once inside of it, and elsewhere once for each search, in
    addition to the model's own.
    """
    state = start.state
    if not (type(model) is EncoderDecoder and isinstance(state, LayersState) and state.position == 0):
        return restrict(model, start)
    blocks = list(model.decoder.blocks)
    if not (_can_run(model) and all(_has_layer(block) for block in blocks) and _alike(blocks)):
        return restrict(model, start)
    caches = [_cross_cache(block.cross) for block in state.blocks if block.cross is not None]
    memory_rows = tuple(_memory_rows(cache) for cache in caches)
    memory = _memory(caches[0]) if caches else Memory(torch.zeros_like(start.tokens), 0, None)
    cache = _empty_cache(model, len(start.tokens))
    return _fused_decoder(model), replace(start, state=FusedState(0, cache, memory_rows, memory, Restriction.of(start)))


def _empty_cache(model: EncoderDecoder, batch_size: int) -> KeyValueCache | None:
    """Return the cache of ``FusedState``."""
    parts = [part for block in model.decoder.blocks for part in _parts(block)]
    count = sum({SoftmaxAttention: 2, GaussianAttention: 1}.get(type(part.layer), 0) for part in parts)
    weight = parts[0].norm.weight
    return KeyValueCache.of_size(batch_size, [(count, len(weight))], weight) if count else None


def _can_run(model: EncoderDecoder) -> bool:
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    plain = all(
        parameter.device.type == "cpu" and parameter.dtype == torch.float32 and not parameter.is_inference()
        for parameter in model.parameters()
    )
    parts = [*model.decoder.modules(), *(() if model.output is None else model.output.modules())]
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in parts)
    fits = plain and not hooked and not model.training and type(model.target) is Embedding
    return fits and can_run_decoder_layers(current_precision())


def _has_layer(block: Block) -> bool:
    if block.stack is not None:
        return False
    kinds = (
        (block.attention, (SoftmaxAttention, GaussianAttention)),
        (block.cross, (CrossSoftmaxAttention, CrossGaussianAttention)),
        (block.feedforward, (FeedForward,)),
    )
    return all(part is None or (type(part.layer) in types and _is_plain(part)) for part, types in kinds)


def _is_plain(part: Residual) -> bool:
    """Return whether a sublayer has a layer norm with bias, no positions, and no learned beside hard-coded heads."""
    if type(part.norm) is not nn.LayerNorm or part.norm.bias is None:
        return False
    if isinstance(part.layer, GaussianAttention | CrossGaussianAttention):
        return part.layer.heads.learned is None
    return getattr(part.layer, "positions", None) is None


def _alike(blocks: list[Block]) -> bool:
    """Return whether all norms have the same placement and epsilon, and there is at least one."""
    norms = {(part.norm_placement, part.norm.eps) for block in blocks for part in _parts(block)}
    return len(norms) == 1


def _parts(block: Any) -> list[Any]:
    return [part for part in (block.attention, block.cross, block.feedforward) if part is not None]


def _cross_cache(state: Any) -> CrossAttentionCache:
    cache: CrossAttentionCache = state if isinstance(state, CrossAttentionCache) else state.hard
    return cache


def _memory_rows(cache: CrossAttentionCache) -> tuple[Tensor, ...]:
    """Return keys, if any, and values, at one stride."""
    rows = tuple(part.flatten(1) for part in cache.rows)
    one_stride = len({part.stride() for part in rows}) == 1 and rows[0].stride(1) == 1
    return rows if one_stride else tuple(part.contiguous() for part in rows)


def _memory(cache: CrossAttentionCache) -> Memory:
    """Return the first row of each memory: its rows are consecutive."""
    indices, size = cache.row_indices, cache.row_indices.shape[1]
    return Memory(indices[:, 0] if size else indices.new_zeros(len(indices)), size, cache.lengths)


def _fused_decoder(model: EncoderDecoder) -> FusedDecoder:
    """Return the decoder with packed weights, which ``linear_precision`` keeps for the next batch.

    Elsewhere they are not kept: fused optimizers change weights without a new version of them.
    """
    embedding: Any = model.target
    parameters = [*embedding.parameters(), *model.decoder.parameters()]
    parameters += [] if model.output is None else model.output.parameters()
    versions = tuple((parameter.data_ptr(), parameter._version) for parameter in parameters)
    return keep_until_changed(embedding.table.weight, "fused decoder", versions, lambda: _packed_decoder(model))


def _packed_decoder(model: EncoderDecoder) -> FusedDecoder:
    blocks, precision = list(model.decoder.blocks), current_precision()
    parts = [part for block in blocks for part in _parts(block)]
    pre_norm, epsilon = parts[0].norm_placement == "pre", parts[0].norm.eps
    sublayers = [sublayer for block in blocks for sublayer in _sublayers(block)]
    packed = pack_sublayers(sublayers, _output(model), pre_norm, epsilon, precision)
    hard_coded = tuple(part.layer.heads.gaussians if hasattr(part.layer, "heads") else None for part in parts)
    return FusedDecoder(model, packed, hard_coded)


def _sublayers(block: Any) -> Iterator[Sublayer]:
    """Return the weights of the sublayers that are present."""
    for part in _parts(block):
        layer, norm = part.layer, (part.norm.weight, part.norm.bias)
        if isinstance(layer, SoftmaxAttention):
            first, count = layer.projection, layer.projection.num_heads
            yield Sublayer("softmax", _linear(first), _linear(layer.output), norm, count)
        elif isinstance(layer, GaussianAttention):
            value = layer.heads.value
            yield Sublayer("gaussian", _linear(value), _linear(layer.output), norm, value.num_heads)
        elif isinstance(layer, CrossSoftmaxAttention):
            yield Sublayer("cross_softmax", _linear(layer.query), _linear(layer.output), norm, layer.query.num_heads)
        elif isinstance(layer, CrossGaussianAttention):
            yield Sublayer("cross_gaussian", None, _linear(layer.output), norm, layer.heads.value.num_heads)
        else:
            yield Sublayer("feedforward", _linear(layer.hidden), _linear(layer.output), norm)


def _output(model: EncoderDecoder) -> Linear:
    embedding: Any = model.target
    return (embedding.class_embeddings(), None) if model.output is None else _linear(model.output)


def _linear(module: nn.Linear) -> Linear:
    return module.weight, module.bias
