"""What training makes small: nats, or smoothed ones, and the receptive fields beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.data.batching.sequences import Batch
from structattn.operators import receptive_field
from structattn.settings.training import LabelSmoothing, TrainingSettings
from structattn.support.errors import SettingsError
from structattn.support.special_tokens import PADDING_CLASS
from structattn.tasks.sequence_loss import cross_entropy_sum, model_inputs
from structattn.tasks.smoothing import label_smoothed_cross_entropy

_EXPECTED = "expected layers of softmax or hard attention"


@dataclass(frozen=True)
class Objective:
    """-log p(batch), its targets smoothed where that is asked for, plus λ Σ_i Σ_j s_ij over positions i that predict.

    Divided by their number the second term is λ R, the regulariser of the Discrete Transformer paper (section 5.1) in
    the form that is not constant.

    Args:
        label_smoothing: of the targets.
        receptive_field_weight: λ.
    """

    label_smoothing: LabelSmoothing | None = None
    receptive_field_weight: float = 0.0

    @classmethod
    def of(cls, training: TrainingSettings) -> "Objective":
        """That of a run."""
        return cls(training.label_smoothing, training.receptive_field_weight)

    def __call__(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """The sum over a batch.

        Args:
            model: as for ``batch_cross_entropy``; with λ, one that hands out its weights (``attend``).
            batch: inputs begin with ``<bos>``, targets end with ``<eos>``.

        Raises:
            SettingsError: λ is not 0, and some layer hands out no weights.
        """
        inputs, lengths, classes = model_inputs(model, batch)
        if not self.receptive_field_weight:
            return self._nats(model(inputs, lengths=lengths), classes)
        logits, weights = _attended(model, inputs, lengths)
        field = receptive_field(_of_every_layer(weights), lengths=lengths)
        predicts = (classes != PADDING_CLASS)[..., None]
        return self._nats(logits, classes) + self.receptive_field_weight * (field * predicts).sum()

    def _nats(self, logits: Tensor, classes: Tensor) -> Tensor:
        if self.label_smoothing is None:
            return cross_entropy_sum(logits, classes)
        return label_smoothed_cross_entropy(
            logits.flatten(0, 1), classes.flatten(), self.label_smoothing, PADDING_CLASS
        )


NATS = Objective()


def _attended(model: torch.nn.Module, inputs: Tensor, lengths: Tensor | None) -> tuple[Tensor, Sequence[Tensor | None]]:
    attend: Any = getattr(model, "attend", None)
    if attend is None:
        raise SettingsError(f"training.receptive_field_weight: this kind of model hands out no weights; {_EXPECTED}")
    logits, weights = attend(inputs, lengths)
    return logits, weights


def _of_every_layer(weights: Sequence[Tensor | None]) -> list[Tensor]:
    found = [of_layer for of_layer in weights if of_layer is not None]
    if len(found) < len(weights):
        missing = [of_layer is None for of_layer in weights].index(True)
        raise SettingsError(f"training.receptive_field_weight: layer {missing} hands out no weights; {_EXPECTED}")
    return found
