"""Which inputs a model's predictions depend on through all its layers, as a record beside those of the layers."""

import numpy as np
from torch import Tensor

from structattn.evaluation.dependencies import has_dependencies, receptive_fields, true_dependencies
from structattn.inference.records import Record
from structattn.inference.runs import TrainedRun
from structattn.support.special_tokens import FIRST_SYMBOL

MECHANISM = "receptive_field"


def receptive_field_record(run: TrainedRun, inputs: Tensor, tokens: tuple[str, ...], layer: int) -> Record | None:
    """The receptive field of one example, (T, T), and the true dependencies where the language's are known.

    Args:
        run: the model and its data.
        inputs: (1, T), ``<bos>`` first.
        tokens: their symbols.
        layer: the number of the last layer.

    Returns:
        None where a layer hands out no weights, as stacks do.
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


def _truth(inputs: np.ndarray) -> np.ndarray:
    """Of the prediction that follows each input: the last input counts, though nothing is known to follow it."""
    return true_dependencies(np.append(inputs[1:] - FIRST_SYMBOL, 0))
