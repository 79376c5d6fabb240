"""The difference of two models in cross-entropy on the same text, by paired bootstrap resampling."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from structattn.support.shapes import Float64, Int64

_SEED: Final = 12345
_INTERVAL: Final = (2.5, 97.5)  # percentiles


@dataclass(frozen=True)
class CrossEntropyDifference:
    """Two models' cross-entropies in nats per token, and their difference; intervals are of 95 %.

    Args:
        difference: second - first; negative: the second model is better.
        p: the p-value: the probability of a difference at least this large if the models are equally good.
        examples: the number of sequences, or of windows of a stream, that are resampled.
    """

    first: float
    second: float
    first_lower: float
    first_upper: float
    second_lower: float
    second_upper: float
    difference: float
    lower: float
    upper: float
    p: float
    examples: int


def compare_cross_entropies(
    first: Float64[np.ndarray, " examples"],
    second: Float64[np.ndarray, " examples"],
    num_tokens: Int64[np.ndarray, " examples"],
    samples: int = 1000,
) -> CrossEntropyDifference:
    """Compare two models by their losses on the same examples, which are resampled with a fixed seed (Koehn 2004).

    Args:
        first: -log p of each example by the first model, in nats.
        second: the same by the second model.
        num_tokens: the number of tokens that are predicted in each example.
        samples: the number of bootstrap samples. Cost: O(samples * examples).
    """
    generator = np.random.default_rng(_SEED)
    sums = np.empty((samples, 3))
    columns = np.stack([first, second, num_tokens.astype(np.float64)], axis=1)
    for sample in sums:
        sample[:] = columns[generator.integers(len(columns), size=len(columns))].sum(axis=0)
    entropies = sums[:, :2] / sums[:, 2:]
    observed = columns[:, :2].sum(axis=0) / columns[:, 2].sum()
    differences = entropies[:, 1] - entropies[:, 0]
    difference = float(observed[1] - observed[0])
    extreme = np.abs(differences - differences.mean()) >= abs(difference)
    (first_lower, first_upper), (second_lower, second_upper), (lower, upper) = (
        np.percentile(values, _INTERVAL).tolist() for values in (*entropies.T, differences)
    )
    return CrossEntropyDifference(
        first=float(observed[0]),
        second=float(observed[1]),
        first_lower=first_lower,
        first_upper=first_upper,
        second_lower=second_lower,
        second_upper=second_upper,
        difference=difference,
        lower=lower,
        upper=upper,
        p=(int(extreme.sum()) + 1) / (samples + 1) if len(columns) > 1 else 1.0,  # all samples are the one example
        examples=len(columns),
    )
