"""A translation model whose decoder runs in a kernel, for as long as the kernel can run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from structattn.attention.cache import CrossAttentionCache, KeyValueCache
from structattn.decoding.stepper import keep_if_unchanged
from structattn.fast.decoder.kernel import (
    Kind,
    Linear,
    Memory,
    PackedLayers,
    decoder_layers,
    has_decoder_kernel,
    pack_sublayers,
    packed_linear,
)
from structattn.fast.decoder.sublayers import (
    LINEAR,
    FastState,
    FastWeights,
    Run,
    Step,
    is_cross,
    kind_of,
    linear_of,
    num_cached,
    weights_of,
)
from structattn.models import EncoderDecoder
from structattn.models.block import Block, Residual
from structattn.models.embedding import Embedding
from structattn.models.layers import Layers, LayersState
from structattn.operators.common.checks import wrong_batch, wrong_width
from structattn.operators.common.differentiation import is_eager
from structattn.support.shapes import Float, Int, Lengths

Parts = Sequence[tuple[Any, Kind | None]]  # sublayers with their kinds in the kernel; None for modules


@dataclass(frozen=True)
class AcceleratedDecoder:
    """A translation model for decoding: its logits are those of the modules, up to rounding.

    Weights may change from batch to batch: ``initial_state`` lays them out, in as much memory again as the decoder's,
    and they are those of all steps from that state on; under ``weights_unchanged`` they are laid out once. Where the
    kernel is not for the model as it is then, it returns the state of the modules, and ``step`` calls them: in training
    mode, with gradients or hooks, under autocast or a compiler, on a GPU, in another dtype. Steps by the kernel are not
    differentiable.

    Args:
        model: of which ``accelerate_decoder`` has found that the kernel computes the same.
    """

    model: EncoderDecoder

    def __call__(self, *inputs: Tensor | None) -> Float[Tensor, "batch time classes"]:
        """Return the logits of whole sequences, by the modules."""
        logits: Tensor = self.model(*inputs)
        return logits

    def initial_state(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> FastState | LayersState:
        """Return the decoder's state before the first target token, which is <bos>; it includes the encoded source."""
        state = self.model.initial_state(source, source_lengths, oov_spellings)
        if not (can_run_now(self.model) and fits_kernel(self.model)):
            return state
        weights = keep_if_unchanged(self, lambda: lay_out(self.model, parts_of(self.model)))
        return fast_state(self.model, weights, state, len(source))

    def step(self, tokens: Int[Tensor, " batch"], state: Any) -> tuple[Float[Tensor, "batch classes"], Any]:
        """Process one target token of each sequence; return the logits of the next and the new state."""
        return fast_step(self.model, tokens, state) if isinstance(state, FastState) else self.model.step(tokens, state)


def fast_step(model: EncoderDecoder, tokens: Tensor, state: FastState) -> tuple[Tensor, FastState]:
    """Return the logits of ``model.step`` and the new state.

    Raises:
        ValueError: the state has another batch size, or is that of a model of another width.
    """
    if len(tokens) != len(state.memory.first):
        raise wrong_batch(tokens, state.memory.first)
    weights, embedding = state.weights, cast(Embedding, model.target)
    cache = None if state.cache is None else _needed(state.cache.extend(), weights)
    state = replace(state, cache=cache)
    indices = tokens.new_zeros(len(tokens), 0) if cache is None else cache.row_indices
    rows, modules, after = Step(state).cached_rows(weights.in_kernel), iter(state.modules), list[Any]()
    x: Any = embedding.embed_step(tokens, state.position)
    if x.shape[1] != weights.d_model:
        raise wrong_width(x, weights.d_model)
    for run in weights.runs:
        if run.packed is not None:
            x = decoder_layers(run.packed, x, [next(rows) for _ in run.parts], indices, state.memory)
        else:
            x, new = _module_step(run.parts[0][0], x, next(modules))
            after.append(new)
    logits = packed_linear(model.decoder.final(x), weights.packed.output)
    return logits, replace(state, position=state.position + 1, modules=tuple(after))


def _needed(cache: KeyValueCache, weights: FastWeights) -> KeyValueCache:
    """Return the new position and those to which it or a later one may attend: few if all heads are hard-coded."""
    attending = [(part.layer, kind) for part, kind in weights.in_kernel if num_cached(kind)]
    if any(kind != "gaussian" for _, kind in attending):
        return cache
    return cache.last(max(1, *(layer.heads.gaussians.values_needed(torch.float32) for layer, _ in attending)))


def _module_step(part: Residual, x: Tensor, state: Any) -> tuple[Any, Any]:
    """Return the output of a sublayer and its new state, None if it has none."""
    return part.step(x, state) if hasattr(part.layer, "step") else (part(x), None)


def fast_state(model: EncoderDecoder, weights: FastWeights, state: LayersState, batch_size: int) -> FastState:
    """Return the state before the first step, given that of the modules."""
    pairs = zip(model.decoder.blocks, state.blocks, strict=True)
    states = iter([of_part for pair in pairs for of_part in _states(*pair)])
    caches, modules = list[CrossAttentionCache](), list[Any]()
    for run in weights.runs:
        for (_, kind), of_part in zip(run.parts, states, strict=False):
            if kind is None:
                modules.append(of_part)
            elif is_cross(kind):
                caches.append(of_part if isinstance(of_part, CrossAttentionCache) else of_part.hard)
    memory = _memory(caches[0]) if caches else Memory(torch.zeros(batch_size, dtype=torch.int64, device="cpu"), 0, None)
    rows, cache = tuple(map(_memory_rows, caches)), _empty_cache(weights, batch_size)
    return FastState(weights, 0, cache, rows, memory, tuple(modules))


def _empty_cache(weights: FastWeights, batch_size: int) -> KeyValueCache | None:
    count, scale = sum(num_cached(kind) for _, kind in weights.in_kernel), weights.packed.sublayers[0].norm[0]
    return KeyValueCache.empty(batch_size, [(count, len(scale))], scale) if count else None


def _memory_rows(cache: CrossAttentionCache) -> tuple[Tensor, ...]:
    """Return keys, if any, and values, at one stride."""
    rows = tuple(part.flatten(1) for part in cache.rows)
    one_stride = len({part.stride() for part in rows}) == 1 and rows[0].stride(1) == 1
    return rows if one_stride else tuple(part.contiguous() for part in rows)


def _memory(cache: CrossAttentionCache) -> Memory:
    """Return the first row of each memory: its rows are consecutive."""
    indices, size = cache.row_indices, cache.row_indices.shape[1]
    return Memory(indices[:, 0] if size else indices.new_zeros(len(indices)), size, cache.lengths)


def stepped_modules(model: EncoderDecoder) -> list[Any]:
    """Return the modules that ``model.step`` calls: it does not call the encoder."""
    return [*model.target.modules(), *model.decoder.modules(), *(model.output.modules() if model.output else ())]


def can_run_now(model: EncoderDecoder) -> bool:
    """Return whether nothing has to see or change what the modules compute at the moment, and there is no dropout."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return is_eager() and not (
        model.training or any(module.training or is_patched(module) for module in stepped_modules(model))
    )


def is_patched(module: Any) -> bool:
    """Return whether a module has hooks, or there are some for all modules, or methods that its class has not."""
    if torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]  # torch's
        return True
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or any(callable(value) and hasattr(type(module), name) for name, value in vars(module).items())


def fits_kernel(model: EncoderDecoder) -> bool:
    """Return whether the kernel has sublayers of the decoder: in float32 on a CPU, and all their norms alike."""
    fit = all(
        type(parameter) is nn.Parameter and parameter.is_cpu and parameter.dtype == torch.float32
        for parameter in model.parameters()
    )
    known = type(model) is EncoderDecoder and type(model.target) is Embedding and type(model.decoder) is Layers
    known = known and (model.output is None or type(model.output) in LINEAR)
    if not (fit and known and has_decoder_kernel() and all(type(block) is Block for block in model.decoder.blocks)):
        return False
    norms = {(part.norm_placement, part.norm.eps) for part, kind in parts_of(model) if kind is not None}
    return len(norms) == 1


def parts_of(model: EncoderDecoder) -> Parts:
    """Return the sublayers that are present."""
    parts = [part for block in model.decoder.blocks for part in _sublayers(block) if part is not None]
    return [(part, kind_of(part)) for part in parts]


def _sublayers(block: Any) -> tuple[Residual | None, ...]:
    return block.attention, block.cross, block.feedforward, block.stack


def _states(block: Any, state: Any) -> Iterator[Any]:
    """Return the states of the sublayers that are present; None for feed-forward sublayers."""
    of_all = (state.attention, state.cross, None, state.stack)
    return (of_one for part, of_one in zip(_sublayers(block), of_all, strict=True) if part is not None)


def lay_out(model: EncoderDecoder, parts: Parts) -> FastWeights:
    """Copy the weights of the sublayers that are in the kernel, at least one, and of the output layer."""
    in_kernel = [(part, kind) for part, kind in parts if kind is not None]
    pre_norm, epsilon = in_kernel[0][0].norm_placement == "pre", in_kernel[0][0].norm.eps
    packed = pack_sublayers([weights_of(part, kind) for part, kind in in_kernel], _output(model), pre_norm, epsilon)
    return FastWeights(packed, tuple(_runs(parts, packed)))


def _runs(parts: Parts, packed: PackedLayers) -> Iterator[Run]:
    """Return the sublayers as runs: as many as possible in a kernel call, each other one alone."""
    first = 0
    for is_module, run in groupby(parts, key=lambda part: part[1] is None):
        together = tuple(run)
        if is_module:
            yield from (Run((part,), None) for part in together)
        else:
            yield Run(together, replace(packed, sublayers=packed.sublayers[first : first + len(together)]))
            first += len(together)


def _output(model: EncoderDecoder) -> Linear:
    embedding: Any = model.target
    return (embedding.class_embeddings(), None) if model.output is None else linear_of(model.output)
