"""Several models that predict as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.decoding.logits import at_least_single, log_normalizer
from structattn.decoding.stepper import Start


@dataclass(frozen=True)
class EnsembleState:
    """The state of each model."""

    members: tuple[Any, ...]

    def select(self, indices: Int[Tensor, " chosen"]) -> "EnsembleState":
        """The states of some members of the batch, in a new order."""
        return EnsembleState(tuple(state.select(indices) for state in self.members))


class Ensemble:
    """The mean of what M models predict, a ``Stepper`` like each of them.

    "probabilities": p = 1/M sum_m p_m, which any one model can keep from zero; the field's default (Ott et al. 2019).
    "log_probabilities": p proportional to prod_m p_m^(1/M), which any one model can bring to zero.

    Args:
        models: of the same target vocabulary; what they read as sources may differ.
        average: of what the mean is taken.

    Raises:
        ValueError: no model, or an unknown mean.
    """

    def __init__(
        self,
        models: Sequence[Any],
        average: Literal["probabilities", "log_probabilities"] = "probabilities",
    ) -> None:
        if not models:
            raise ValueError("an ensemble of no models; expected at least one")
        if average not in ("probabilities", "log_probabilities"):
            raise ValueError(f"average={average!r}; expected 'probabilities' or 'log_probabilities'")
        self.models, self.average = tuple(models), average

    def __call__(self, *args: Any, **kwargs: Any) -> Float[Tensor, "*batch classes"]:
        """Logits of whole sequences: every model's forward door is given the same."""
        return self.mean([model(*args, **kwargs) for model in self.models])

    def start(self, starts: Sequence[Start]) -> Start:
        """One start made of each model's own, in the order of the models, all of the same sentences."""
        if len(starts) != len(self.models):
            raise ValueError(f"{len(starts)} starts for {len(self.models)} models; expected one for each")
        return Start(EnsembleState(tuple(start.state for start in starts)), starts[0].tokens)

    def step(
        self, tokens: Int[Tensor, " batch"], state: EnsembleState
    ) -> tuple[Float[Tensor, "batch classes"], EnsembleState]:
        """Every model reads the token. Cost: the sum of theirs."""
        stepped = [model.step(tokens, member) for model, member in zip(self.models, state.members, strict=True)]
        return self.mean([logits for logits, _ in stepped]), EnsembleState(tuple(after for _, after in stepped))

    def mean(self, logits: Sequence[Float[Tensor, "*batch classes"]]) -> Float[Tensor, "*batch classes"]:
        """One prediction of those of each model."""
        whole = [at_least_single(of_one) for of_one in logits]
        predictions = torch.stack([of_one - log_normalizer(of_one)[..., None] for of_one in whole])
        return predictions.logsumexp(0) if self.average == "probabilities" else predictions.mean(0)
