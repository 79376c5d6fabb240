"""Translation models whose decoder runs in one kernel call for each step, or in one for each run of layers in it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.modules import module as torch_module

from structattn.attention.cache import CrossAttentionCache, KeyValueCache
from structattn.decoding.candidates import Restriction, restrict
from structattn.decoding.fused_state import FusedState
from structattn.decoding.fused_sublayers import LINEAR, Step, is_cross, kind_of, linear_of, num_cached, weights_of
from structattn.decoding.stepper import DecodingStart, Stepper
from structattn.models import EncoderDecoder
from structattn.models.block import Block, Residual
from structattn.models.embedding import Embedding
from structattn.models.layers import LayersState
from structattn.operators.decoder_layers import (
    Kind,
    Memory,
    PackedLayers,
    can_run_decoder_layers,
    decoder_layers,
    pack_sublayers,
)
from structattn.operators.linear import current_precision, keep_until_changed
from structattn.operators.linear.packed import Linear, packed_linear
from structattn.operators.linear.selected import selected_linear


@dataclass(frozen=True)
class _Run:
    """Sublayers that follow each other: any number in one kernel call, or one as a module.

    Args:
        parts: the sublayers with their kinds.
        packed: the weights for the kernel; None for a module.
    """

    parts: tuple[tuple[Residual, Kind | None], ...]
    packed: PackedLayers | None


@dataclass(frozen=True)
class FusedDecoder:
    """A ``Stepper`` that gives the same logits as the model's ``step``, up to rounding.

    Args:
        model: the model.
        packed: the weights of all sublayers in the kernel, and of the output layer.
        runs: the sublayers of the decoder.
    """

    model: EncoderDecoder
    packed: PackedLayers
    runs: tuple[_Run, ...]

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
        rows = Step(state).cached_rows(_in_kernel(self.runs))
        x, modules, after = embedding.embed_step(tokens, state.position), iter(state.modules), []
        for run in self.runs:
            if run.packed is not None:
                x = decoder_layers(run.packed, x, [next(rows) for _ in run.parts], indices, state.memory)
            else:
                x, new = _module_step(run.parts[0][0], x, next(modules))
                after.append(new)
        logits = self._logits(self.model.decoder.final(x), state.restriction)
        return logits, replace(state, position=state.position + 1, modules=tuple(after))

    def _logits(self, x: Tensor, restriction: Restriction | None) -> Tensor:
        if restriction is None:
            return packed_linear(x, self.packed.output)
        return selected_linear(x, _output(self.model), restriction.lists, restriction.list_of_row)

    def _needed(self, cache: KeyValueCache) -> KeyValueCache:
        """Return the positions to which a later one may attend: not all of them if all heads are hard-coded."""
        attending = [(part.layer, kind) for part, kind in _in_kernel(self.runs) if num_cached(kind)]
        if any(kind != "gaussian" for _, kind in attending):
            return cache
        return cache.last(max(layer.heads.gaussians.values_needed(torch.float32) for layer, _ in attending))


def _module_step(part: Residual, x: Tensor, state: Any) -> tuple[Any, Any]:
    """Return the output of a sublayer and its new state, None if it has none."""
    return (part(x), None) if state is None else part.step(x, state)


def fuse(model: Stepper, start: DecodingStart) -> tuple[Stepper, DecodingStart]:
    """Return a faster model with its start, where the kernel has sublayers of the decoder; the arguments elsewhere.

    The sublayers that it does not have, such as stacks, run as modules between the others. The logits of both are those
    of the candidates of the start, if it has any.

    The kernel is for float32 models on a CPU in evaluation mode, without gradients; its products are in the precision
    that ``linear_precision`` sets. Weights are laid out once inside of it, and elsewhere once for each search, in
    addition to the model's own.
    """
    state = start.state
    if not (type(model) is EncoderDecoder and isinstance(state, LayersState) and state.position == 0):
        return restrict(model, start)
    if not (_can_run(model) and _are_alike(model)):
        return restrict(model, start)
    fused = _fused_decoder(model)
    states = iter(
        [of_part for pair in zip(model.decoder.blocks, state.blocks, strict=True) for of_part in _states(*pair)]
    )
    caches, modules = list[CrossAttentionCache](), list[Any]()
    for run in fused.runs:
        for (_, kind), of_part in zip(run.parts, states, strict=False):
            if kind is None:
                modules.append(of_part)
            elif is_cross(kind):
                caches.append(_cross_cache(of_part))
    memory = _memory(caches[0]) if caches else Memory(torch.zeros_like(start.tokens), 0, None)
    rows = tuple(map(_memory_rows, caches))
    cache = _empty_cache(fused, len(start.tokens))
    return fused, replace(start, state=FusedState(0, cache, rows, memory, tuple(modules), Restriction.of(start)))


def _empty_cache(fused: FusedDecoder, batch_size: int) -> KeyValueCache | None:
    """Return the cache of ``FusedState``."""
    parts = _in_kernel(fused.runs)
    count, weight = sum(num_cached(kind) for _, kind in parts), parts[0][0].norm.weight
    return KeyValueCache.of_size(batch_size, [(count, len(weight))], weight) if count else None


def _can_run(model: EncoderDecoder) -> bool:
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    plain = all(
        parameter.device.type == "cpu" and parameter.dtype == torch.float32 and not parameter.is_inference()
        for parameter in model.parameters()
    )
    parts = [*model.decoder.modules(), *(() if model.output is None else model.output.modules())]
    hooked = torch_module._has_any_global_hook() or any(_is_hooked(part) for part in parts)  # type: ignore[no-untyped-call]  # torch's
    in_training = model.training or any(module.training for module in parts)
    known = type(model.target) is Embedding and (model.output is None or type(model.output) in LINEAR)
    return plain and known and not hooked and not in_training and can_run_decoder_layers(current_precision())


def _are_alike(model: EncoderDecoder) -> bool:
    """Return whether there are sublayers in the kernel, and all their norms have the same placement and epsilon."""
    if not all(type(block) is Block for block in model.decoder.blocks):
        return False
    norms = {(part.norm_placement, part.norm.eps) for part, kind in _parts(model) if kind is not None}
    return len(norms) == 1


def _parts(model: EncoderDecoder) -> list[tuple[Any, Kind | None]]:
    """Return the sublayers that are present, and their kinds in the kernel; None for modules."""
    parts = [part for block in model.decoder.blocks for part in _sublayers(block) if part is not None]
    return [(part, kind_of(part)) for part in parts]


def _sublayers(block: Any) -> tuple[Residual | None, ...]:
    return block.attention, block.cross, block.feedforward, block.stack


def _states(block: Any, state: Any) -> Iterator[Any]:
    """Return the states of the sublayers that are present; None for feed-forward sublayers."""
    of_all = (state.attention, state.cross, None, state.stack)
    return (of_one for part, of_one in zip(_sublayers(block), of_all, strict=True) if part is not None)


def _in_kernel(runs: tuple[_Run, ...]) -> list[tuple[Any, Kind]]:
    return [(part, kind) for run in runs for part, kind in run.parts if kind is not None]


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

    Elsewhere they are not kept: torch's fused optimizers change weights without a new version of them.
    """
    embedding: Any = model.target
    parameters = [*embedding.parameters(), *model.decoder.parameters()]
    parameters += [] if model.output is None else model.output.parameters()
    versions = tuple((parameter.data_ptr(), parameter._version) for parameter in parameters)
    return keep_until_changed(embedding.table.weight, "fused decoder", versions, lambda: _packed_decoder(model))


def _packed_decoder(model: EncoderDecoder) -> FusedDecoder:
    parts = _parts(model)
    in_kernel = [(part, kind) for part, kind in parts if kind is not None]
    pre_norm, epsilon = in_kernel[0][0].norm_placement == "pre", in_kernel[0][0].norm.eps
    sublayers = [weights_of(part, kind) for part, kind in in_kernel]
    packed = pack_sublayers(sublayers, _output(model), pre_norm, epsilon, current_precision())
    return FusedDecoder(model, packed, tuple(_runs(parts, packed)))


def _runs(parts: list[tuple[Any, Kind | None]], packed: PackedLayers) -> Iterator[_Run]:
    """Return the sublayers as runs: as many as possible in a kernel call, each other one alone."""
    first = 0
    for is_module, run in groupby(parts, key=lambda part: part[1] is None):
        together = tuple(run)
        if is_module:
            yield from (_Run((part,), None) for part in together)
        else:
            yield _Run(together, replace(packed, sublayers=packed.sublayers[first : first + len(together)]))
            first += len(together)


def _output(model: EncoderDecoder) -> Linear:
    embedding: Any = model.target
    return (embedding.class_embeddings(), None) if model.output is None else linear_of(model.output)


def _is_hooked(module: Any) -> bool:
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks)
