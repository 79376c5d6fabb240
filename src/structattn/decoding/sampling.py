"""Sampling, and sampling of translations that is a function of a seed and of the line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.decoding.batches import MaxLengths
from structattn.decoding.greedy import IsComplete, decode_loop
from structattn.decoding.stepper import DecodingStart, Hypothesis, Stepper
from structattn.support.errors import UsageError
from structattn.support.seeds import derived_seed
from structattn.support.shapes import Float


@dataclass(frozen=True)
class Sampling:
    """Settings of sampling; the temperature is applied first, then ``top_k``, then ``top_p`` to what remains.

    Args:
        temperature: logits are divided by it, finite; 0, or less than the smallest normal number of the logits' dtype,
            takes the most probable token.
        top_k: keep only the k most probable classes, the lower ones among equals (Fan et al. 2018); None keeps all.
        top_p: keep only the smallest set of most probable classes whose total probability is at least p, in (0, 1]
            (nucleus sampling, Holtzman et al. 2020, section 3.1); None keeps all.

    Raises:
        ValueError: ``temperature`` is negative or not finite, ``top_k`` less than 1 or not whole, or ``top_p`` outside
            (0, 1].
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature}; expected at least 0, and finite")
        if self.top_k is not None and not (self.top_k >= 1 and self.top_k % 1 == 0):
            raise ValueError(f"top_k={self.top_k}; expected a whole number of at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}; expected more than 0 and at most 1")

    def is_greedy(self, dtype: torch.dtype) -> bool:
        """Return whether the temperature is 0 for logits of a dtype, in which it cannot divide."""
        return self.temperature < torch.finfo(dtype).tiny

    def probabilities(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch classes"]:
        """Return the probability of drawing each class, unless ``is_greedy``; a row of logits is not all -inf.

        Cost: a sort of the classes where ``top_k`` or ``top_p`` is set.
        """
        temperature = min(self.temperature, torch.finfo(logits.dtype).max)  # inf would divide -inf
        logits = (logits - logits.amax(-1, keepdim=True)) / temperature  # low temperatures must not overflow
        if self.top_k is None and self.top_p is None:
            return logits.softmax(-1)
        values, classes = logits.sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            ranks = torch.arange(values.shape[-1], device=values.device)
            values = values.masked_fill(ranks >= self.top_k, -math.inf)
        if self.top_p is not None and self.top_p < 1:  # the rounded sum may reach 1 before the last class
            probabilities = values.softmax(-1)
            top_p = max(self.top_p, torch.finfo(values.dtype).tiny)  # which rounds to 0, and the first class is kept
            values = values.masked_fill(probabilities.cumsum(-1) - probabilities >= top_p, -math.inf)
        return torch.zeros_like(logits).scatter(-1, classes, values.softmax(-1))


def sample(
    model: Stepper,
    start: DecodingStart,
    max_lengths: MaxLengths,
    generator: torch.Generator | Sequence[torch.Generator],
    sampling: Sampling | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    is_complete: IsComplete | None = None,
    num_eos: int = 1,
) -> list[Hypothesis]:
    """Draw a token at each step.

    The same generator state, sentences and order of sentences give the same texts. With one generator for each
    sentence, its text does not depend on the other sentences.

    Args:
        model: in evaluation mode.
        start: the sentences, from ``start_translation`` or ``start_continuation``.
        max_lengths: the maximum number of tokens of each text, <eos> and prefix included; one number for all, or one
            for each sentence.
        generator: on the device of the sentences; one for all, or one for each sentence.
        sampling: temperature, top-k and top-p; None draws from the model's distribution.
        prefixes: ids, without <bos>, that each text must begin with.
        is_complete: whether a text ends although it has no <eos>, given the index of its sentence and all
            its ids so far; None: it does not.
        num_eos: the number of <eos> at which a text ends: of lines, for a model of a stream.

    Returns:
        One hypothesis for each sentence, unfinished where it was cut at the maximum length. Its log-probability is
        that of the model's own distribution, without temperature and filters.

    Raises:
        ValueError: the model returns NaN or +inf, or ``max_lengths``, ``prefixes`` or the number of generators is
            invalid.
    """
    settings = Sampling() if sampling is None else sampling
    if not isinstance(generator, torch.Generator) and len(generator) != len(start.tokens):
        raise ValueError(f"{len(generator)} generators for {len(start.tokens)} sentences; expected one for each")

    def draw(logits: Tensor, sentences: Tensor) -> Tensor:
        if settings.is_greedy(logits.dtype):
            return logits.argmax(1)
        impossible = (logits == -math.inf).all(1, keepdim=True)  # the loop cuts the text: any class will do
        probabilities = settings.probabilities(logits.masked_fill(impossible, 0))
        if isinstance(generator, torch.Generator):
            return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        generators = [generator[sentence] for sentence in sentences.tolist()]
        return torch.cat([torch.multinomial(p, 1, generator=g) for p, g in zip(probabilities, generators, strict=True)])

    return decode_loop(model, start, draw, max_lengths, prefixes, is_complete, num_eos)


@dataclass(frozen=True)
class SeededSampling:
    """Sampling with a generator for each line, seeded by the seed, the line and the number of the sample alone."""

    sampling: Sampling
    seed: int

    def __call__(
        self,
        model: Stepper,
        start: DecodingStart,
        max_lengths: Tensor,
        lines: Sequence[str],
        num_samples: int,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return samples for each line, in the order in which they were drawn."""
        device = start.tokens.device
        samples = []
        for number in range(num_samples):
            generators = [self._generator(device, line, number) for line in lines]
            samples.append(sample(model, start, max_lengths, generators, self.sampling, prefixes))
        return [list(of_line) for of_line in zip(*samples, strict=True)]

    def _generator(self, device: torch.device, line: str, number: int) -> torch.Generator:
        return torch.Generator(device).manual_seed(derived_seed(self.seed, "translation", line, number))


def seeded_sampling(
    temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> SeededSampling | None:
    """Return sampling with the given options; None if none of the first three is given.

    Raises:
        UsageError: an option is out of its range.
    """
    if temperature is top_k is top_p is None:
        return None
    try:
        return SeededSampling(Sampling(1.0 if temperature is None else temperature, top_k, top_p), seed)
    except ValueError as error:
        raise UsageError(str(error)) from None
