"""Records of receptive fields: the inputs that each prediction depends on through all layers."""

import numpy as np
import torch
from torch import Tensor

from structattn.loading.records import Record
from structattn.loading.trained_run import TrainedRun
from structattn.models.mode import evaluating
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.formal_languages.dependencies import has_dependencies, receptive_fields, true_dependencies
from structattn.tasks.translation.predictions import (
    layer_without_weights,
    model_inputs,
    pair_receptive_fields,
    translation_model,
)
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch
from structattn.text.tokenization.vocabulary import Vocabulary

MECHANISM = "receptive_field"


def receptive_field_records(run: TrainedRun, batch: Batch | PairBatch, layer: int) -> list[Record]:
    """Return the receptive fields of a batch of size 1 through all layers.

    Args:
        run: the trained run.
        batch: a sequence, or a pair, explained under teacher forcing.
        layer: the index of the last layer, of a pair the last of the decoder.

    Returns:
        For a sequence one record, (T, T), with the true dependencies if the language has known ones. For a pair two,
        (T, T) for target inputs and (T, S) for source inputs. None if a layer mixes positions without attention
        weights, as stacks do.
    """
    if isinstance(batch, PairBatch):
        return _pair_records(run, batch, layer)
    return _sequence_records(run, batch.inputs, layer)


def _sequence_records(run: TrainedRun, inputs: Tensor, layer: int) -> list[Record]:
    field = receptive_fields(run.model, inputs.to(next(run.model.parameters()).device))
    if field is None:
        return []
    tokens = _symbols(run.prepared.vocabulary, inputs)
    return [
        Record(
            tokens=tokens,
            layer=layer,
            sublayer="receptive-field",
            head=None,
            mechanism=MECHANISM,
            weights=field[0].double().cpu().numpy(),
            sources=tokens,
            truth=_truth(inputs[0].cpu().numpy()) if has_dependencies(run.prepared) else None,
        )
    ]


def _pair_records(run: TrainedRun, pair: PairBatch, layer: int) -> list[Record]:
    model, sides = translation_model(run), run.prepared.sides
    batch = pair.to(next(model.parameters()).device)
    with evaluating(model), torch.no_grad():
        _, weights = model.attended_hidden_states(*model_inputs(model, batch))
    if layer_without_weights(model, weights) is not None:
        return []
    fields = pair_receptive_fields(weights, None, None)
    target = _symbols(sides.target.vocabulary, batch.inputs)
    source = _symbols(sides.source.vocabulary, batch.source)
    kinds = (("receptive-field", fields.target, target), ("source-receptive-field", fields.source, source))
    return [
        Record(
            tokens=target,
            layer=layer,
            sublayer=sublayer,
            head=None,
            mechanism=MECHANISM,
            weights=field[0].double().cpu().numpy(),
            sources=inputs,
            side="decoder",
        )
        for sublayer, field, inputs in kinds
    ]


def _symbols(vocabulary: Vocabulary, ids: Tensor) -> tuple[str, ...]:
    return tuple(vocabulary.symbols[token] for token in ids[0].tolist())


def _truth(inputs: np.ndarray) -> np.ndarray:
    """Return the true dependencies of the prediction after each input; a placeholder follows the last input."""
    return true_dependencies(np.append(inputs[1:] - FIRST_SYMBOL, 0))
