"""Translation by sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.decoding import DecodingStart, Hypothesis, Sampling, Stepper, sample
from structattn.support.errors import UsageError
from structattn.support.seeds import derived_seed


@dataclass(frozen=True)
class SeededSampling:
    """Sampling with a generator for each line, seeded by the seed, the line and the number of the sample alone.

    Args:
        sampling: temperature, top-k and top-p.
        seed: of all samples.
    """

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
