"""Sampling from a model's predictions, as they are or sharpened and cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.decoding.decode_loop import one_by_one
from structattn.decoding.greedy import likeliest
from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.limits import Limits
from structattn.decoding.stepper import Start, Stepper


@dataclass(frozen=True)
class Sampling:
    """What predictions are drawn from: first the temperature, then ``top_k``, then ``top_p`` of what that left.

    Args:
        temperature: logits are divided by it; 0 takes the likeliest token.
        top_k: only the k likeliest classes, the lower ones among equals (Fan et al. 2018); None keeps all.
        top_p: only the fewest of the likeliest classes that have at least this probability together, one at least
            (nucleus sampling, Holtzman et al. 2020, section 3.1); None keeps all.

    Raises:
        ValueError: a negative temperature, no class to draw from, or a probability that is none.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature={self.temperature}; expected at least 0")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k}; expected at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}; expected more than 0 and at most 1")

    def probabilities(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch classes"]:
        """Of each class to be drawn, at a temperature above 0. Cost: a sort of the classes where any filter is set."""
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature  # so that a low one overflows downwards
        if self.top_k is None and self.top_p is None:
            return logits.softmax(-1)
        values, classes = logits.sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            values = values.masked_fill(_places(values) >= self.top_k, -math.inf)
        if self.top_p is not None:
            of_each = values.softmax(-1)
            values = values.masked_fill(of_each.cumsum(-1) - of_each >= self.top_p, -math.inf)
        return torch.zeros_like(logits).scatter(-1, classes, values.softmax(-1))


def sample(
    model: Stepper,
    start: Start,
    limits: Limits,
    generator: torch.Generator | Sequence[torch.Generator],
    sampling: Sampling | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Hypothesis]:
    """A token drawn at each step.

    The same generator, sentences and order of sentences give the same texts; with a generator for each sentence, its
    text does not depend on the others.

    Args:
        model: what predicts, in evaluation mode.
        start: the sentences, from ``translation`` or ``continuation``.
        limits: the most tokens of each text, <eos> and forced ones counted; one number is everyone's.
        generator: on the device of the sentences; what is drawn comes from it. One for each sentence, or for all.
        sampling: temperature and filters; None draws from what the model predicts.
        prefixes: what each text must begin with, without <bos>.

    Returns:
        One hypothesis for each sentence; unfinished where the limit cut it. Its log-probability is the model's own,
        whatever was drawn from.

    Raises:
        ValueError: the model gives NaN, or limits, prefixes or the number of generators do not fit.
    """
    chosen = Sampling() if sampling is None else sampling
    if not isinstance(generator, torch.Generator) and len(generator) != len(start.tokens):
        raise ValueError(f"{len(generator)} generators for {len(start.tokens)} sentences; expected one for each")

    def draw(logits: Tensor, sentences: Tensor) -> Tensor:
        if bool(logits.isnan().any()):
            raise ValueError("the model gave NaN; there is nothing to draw from")
        if chosen.temperature == 0:
            return likeliest(logits)
        nothing = (logits == -math.inf).all(1, keepdim=True)  # cut by the caller; any class will do
        probabilities = chosen.probabilities(logits.masked_fill(nothing, 0))
        if isinstance(generator, torch.Generator):
            return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        of_each = [generator[sentence] for sentence in sentences.tolist()]
        return torch.cat([torch.multinomial(p, 1, generator=g) for p, g in zip(probabilities, of_each, strict=True)])

    return one_by_one(model, start, draw, limits, prefixes)


def _places(values: Tensor) -> Tensor:
    return torch.arange(values.shape[-1], device=values.device)
