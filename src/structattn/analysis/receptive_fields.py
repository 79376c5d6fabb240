"""Record of the receptive field: the inputs that each prediction depends on through all layers."""

import numpy as np
from torch import Tensor

from structattn.evaluation.dependencies import has_dependencies, receptive_fields, true_dependencies
from structattn.inference.records import Record
from structattn.inference.runs import TrainedRun
from structattn.support.special_tokens import FIRST_SYMBOL

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


def _truth(inputs: np.ndarray) -> np.ndarray:
    """Return the true dependencies of the prediction after each input; a placeholder follows the last input."""
    return true_dependencies(np.append(inputs[1:] - FIRST_SYMBOL, 0))
