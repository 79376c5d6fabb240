"""Records of receptive fields: the inputs that each prediction depends on through all layers."""

import numpy as np
import torch
from torch import Tensor

from structattn.data.batching.pairs import make_pair_batch
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.evaluation.dependencies import has_dependencies, receptive_fields, true_dependencies
from structattn.inference.loaded import translation_model
from structattn.inference.records import Record
from structattn.inference.runs import TrainedRun
from structattn.models.mode import evaluating
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.translation.predictions import model_inputs
from structattn.tasks.translation.receptive_fields import layer_without_weights, pair_receptive_fields

MECHANISM = "receptive_field"


def receptive_field_record(run: TrainedRun, inputs: Tensor, tokens: tuple[str, ...], layer: int) -> Record | None:
    """Return the receptive field of one example, (T, T), with the true dependencies if the language has known ones.

    Args:
        run: the trained run.
        inputs: (1, T), starting with ``<bos>``.
        tokens: their symbols.
        layer: the index of the last layer.

    Returns:
        None if a layer has no attention weights, as stacks do.
    """
    field = receptive_fields(run.model, inputs)
    if field is None:
        return None
    return Record(
        tokens=tokens,
        layer=layer,
        sublayer="receptive-field",
        head=None,
        mechanism=MECHANISM,
        weights=field[0].double().cpu().numpy(),
        sources=tokens,
        truth=_truth(inputs[0].cpu().numpy()) if has_dependencies(run.prepared) else None,
    )


def pair_receptive_field_records(run: TrainedRun, split: str, example: int) -> list[Record]:
    """Return the receptive fields of a decoder's positions under teacher forcing: target inputs, and source inputs.

    Args:
        run: a translation run.
        split: a split of its prepared folder.
        example: the index of the pair.

    Returns:
        Two records, (T, T) and (T, S); none if a layer mixes positions without attention weights, as stacks do.
    """
    model, sides = translation_model(run), run.prepared.sides
    batch = make_pair_batch(run.prepared.pairs(split), [example]).to(next(model.parameters()).device)
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
            layer=len(weights.decoder) - 1,
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
