"""Ensembles: several models that predict as one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from structattn.decoding.continuations import with_log_normalizer
from structattn.decoding.stepper import DecoderState, DecodingStart, Stepper
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Float, Int


class _Member(Stepper, Protocol):
    """A model that predicts whole sequences and single steps."""

    def __call__(self, *inputs: Tensor | None) -> Float[Tensor, "*batch classes"]: ...


@dataclass(frozen=True)
class EnsembleState(Selectable):
    """The states of all models."""

    members: tuple[DecoderState, ...]


class Ensemble:
    """The average of the predictions of M models; a ``Stepper``, as each of them is.

    "probabilities": p = 1/M sum_m p_m, which a single model can keep from zero; the usual choice (Ott et al. 2019).
    "log_probabilities": p proportional to prod_m p_m^(1/M), which a single model can bring to zero.

    Args:
        models: with the same target vocabulary; their sources may differ.
        average: what is averaged.

    Raises:
        ValueError: there are no models, or ``average`` is unknown.
    """

    def __init__(
        self,
        models: Sequence[_Member],
        average: Literal["probabilities", "log_probabilities"] = "probabilities",
    ) -> None:
        if not models:
            raise ValueError("an ensemble of no models; expected at least one")
        if average not in ("probabilities", "log_probabilities"):
            raise ValueError(f"average={average!r}; expected 'probabilities' or 'log_probabilities'")
        self.models, self.average = tuple(models), average

    def __call__(self, *inputs: Tensor | None) -> Float[Tensor, "*batch classes"]:
        """Return log-probabilities for whole sequences; every model is called with the same inputs."""
        return self.mean([model(*inputs) for model in self.models])

    def start(self, starts: Sequence[DecodingStart]) -> DecodingStart:
        """Combine one start of each model, in the order of the models, for the same sentences.

        Raises:
            ValueError: there is not one start for each model.
        """
        if len(starts) != len(self.models):
            raise ValueError(f"{len(starts)} starts for {len(self.models)} models; expected one for each")
        return DecodingStart(EnsembleState(tuple(start.state for start in starts)), starts[0].tokens)

    def step(
        self, tokens: Int[Tensor, " batch"], state: EnsembleState
    ) -> tuple[Float[Tensor, "batch classes"], EnsembleState]:
        """Take one more token in every model; return log-probabilities for the next one and the states."""
        stepped = [model.step(tokens, member) for model, member in zip(self.models, state.members, strict=True)]
        return self.mean([logits for logits, _ in stepped]), EnsembleState(tuple(after for _, after in stepped))

    def mean(self, logits: Sequence[Float[Tensor, "*batch classes"]]) -> Float[Tensor, "*batch classes"]:
        """Return the average of the models' predictions, as log-probabilities.

        A model that forbids all classes, whose logits are all -inf, has p_m = 0: with the average of probabilities, the
        sum of p is then the share of the others, and with that of log-probabilities all classes are forbidden.

        Raises:
            ValueError: a logit is NaN or +inf.
        """
        log_probs = torch.stack([_log_probabilities(of_model) for of_model in logits])
        if self.average == "probabilities":
            return log_probs.logsumexp(0) - math.log(len(log_probs))
        return _log_probabilities(log_probs.mean(0))


def _log_probabilities(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch classes"]:
    logits, log_normalizer = with_log_normalizer(logits)
    return logits - log_normalizer[..., None]


def start_together(models: Sequence[_Member], starts: Sequence[DecodingStart]) -> tuple[Stepper, DecodingStart]:
    """Return what predicts as the models do together, with its start: an ensemble, or the only model."""
    if len(models) == 1:
        return models[0], starts[0]
    ensemble = Ensemble(models)
    return ensemble, ensemble.start(starts)
