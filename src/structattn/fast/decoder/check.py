"""The check that the kernel computes what the modules of a translation model compute, before it takes their place."""

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from structattn.fast.decoder.model import (
    AcceleratedDecoder,
    Parts,
    fast_state,
    fast_step,
    fits_kernel,
    is_patched,
    lay_out,
    parts_of,
    stepped_modules,
)
from structattn.fast.decoder.sublayers import FastWeights, Run
from structattn.fast.own_numbers import generator_restored, may_draw_otherwise
from structattn.models import EncoderDecoder
from structattn.models.embedding import Embedding
from structattn.support.special_tokens import CLASS_OFFSET

_TOLERANCE = 1e-4  # relative to the greatest logit
_NUM_TOKENS = 64
_BATCHES = ((5, (5, 1, 3), 4), (1, None, 1))  # sizes and lengths of memories, and numbers of steps

_logger = logging.getLogger("structattn")


def accelerate_decoder(model: EncoderDecoder) -> EncoderDecoder | AcceleratedDecoder:
    """Return the model for decoding: one whose ``step`` runs in a kernel where that computes the same, or itself.

    Both are compared on random weights, in a copy of the decoder: a few steps of a small batch, which takes as long as
    some steps of a large one. Where they differ, or modules have hooks or methods of their own, a warning says so. It
    holds for the code as it is; call this again after patching it.
    """
    if not fits_kernel(model):
        return model
    names = {module: name for name, module in model.named_modules()}
    patched = [names[module] for module in (model, *stepped_modules(model)) if is_patched(module)]
    difference = f"{patched[0] or 'the model'} has hooks or methods of its own" if patched else _difference(model)
    if difference is None:
        return AcceleratedDecoder(model)
    _logger.warning("decoding calls the modules of the decoder, which is slower than its kernel: %s", difference)
    return model


@torch.no_grad()
def _difference(model: EncoderDecoder) -> str | None:
    """Return where the kernel computes something else; None if nowhere."""
    with generator_restored(may_draw_otherwise(stepped_modules(model))), torch.autocast("cpu", enabled=False):
        copied = _randomized(model)
        parts, expected = parts_of(copied), list(_logits(copied, None))
        weights = lay_out(copied, parts)
        greatest = _greatest(copied, weights, expected)
        if greatest <= _TOLERANCE:
            return None
        around = replace(weights, runs=tuple(Run(((part, None),), None) for part, _ in parts))
        place = "what surrounds the sublayers"
        if _greatest(copied, around, expected) <= _TOLERANCE:
            place = _first_different(copied, parts, expected) or "a sublayer"
    return f"{place} computes something else, which changes logits by {greatest:.2g} of the greatest"


def _first_different(model: EncoderDecoder, parts: Parts, expected: list[Tensor]) -> str | None:
    """Return the name of the first sublayer that, alone in the kernel, changes the logits."""
    names: dict[Any, str] = {module: name for name, module in model.named_modules()}
    for part, kind in parts:
        if kind is not None:
            alone = lay_out(model, [(other, kind if other is part else None) for other, _ in parts])
            if _greatest(model, alone, expected) > _TOLERANCE:
                return str(names[part])
    return None


def _randomized(model: EncoderDecoder) -> EncoderDecoder:
    """Return a copy in evaluation mode with few tokens and random weights, so that none of them is zero.

    The encoder is that of the model, with its weights.
    """
    unused = [module for module in (model.encoder, model.source, model.spelling) if module is not None]
    embedding: Any = model.target
    outputs = () if model.output is None else model.output.parameters()
    memo: dict[int, Any] = {id(module): module for module in unused}
    of_tokens = {id(parameter) for parameter in (embedding.table.weight, *outputs)}
    generator = torch.Generator("cpu").manual_seed(0)
    for module in stepped_modules(model):
        for name, parameter in module.named_parameters(recurse=False):
            shape = (_NUM_TOKENS, *parameter.shape[1:]) if id(parameter) in of_tokens else parameter.shape
            bound = math.sqrt(3 / shape[-1]) / 2 if len(shape) > 1 else 0.5
            middle = 1.0 if isinstance(module, nn.LayerNorm) and name == "weight" else 0.0  # small ones hide sublayers
            random = parameter.new_empty(shape).uniform_(middle - bound, middle + bound, generator=generator)
            memo.setdefault(id(parameter), nn.Parameter(random))
    copied = copy.deepcopy(model, memo)
    copied.target.vocabulary_size = _NUM_TOKENS if embedding.full_table else _NUM_TOKENS + CLASS_OFFSET
    for module in (copied, *stepped_modules(copied)):
        module.training = False
    return copied


def _greatest(model: EncoderDecoder, weights: FastWeights, expected: list[Tensor]) -> float:
    """Return the greatest difference of logits by the kernel, relative to the greatest logit; infinity for NaN."""
    pairs = zip(_logits(model, weights), expected, strict=True)
    return max(float(((new - old).abs().max() / old.abs().max()).nan_to_num(math.inf)) for new, old in pairs)


def _logits(model: EncoderDecoder, weights: FastWeights | None) -> Iterator[Tensor]:
    """Yield the logits of some steps by the kernel, or by the modules, for beams that are reordered and grow."""
    generator, embedding = torch.Generator("cpu").manual_seed(0), cast(Embedding, model.target)
    most = model.max_target_positions or max(num_steps for *_, num_steps in _BATCHES)
    for size, of_memories, num_steps in _BATCHES:
        rows, lengths = (
            torch.arange(3, device="cpu"),
            None if of_memories is None else torch.tensor(of_memories, device="cpu"),
        )
        memory = torch.randn(
            3, size, embedding.table.embedding_dim, generator=generator, device="cpu", dtype=torch.float32
        )
        state: Any = model.decoder.initial_state(3, memory, lengths)
        if weights is not None:
            state = fast_state(model, weights, state, 3)
        for step in range(min(num_steps, most)):
            tokens = torch.randint(3, _NUM_TOKENS, (len(rows),), generator=generator, device="cpu")
            logits, state = model.step(tokens, state) if weights is None else fast_step(model, tokens, state)
            yield logits
            rows = torch.randint(len(rows), (3 + step,), generator=generator, device="cpu")
            state = state.select(rows)
