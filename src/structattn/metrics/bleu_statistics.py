"""BLEU of any part of a corpus from counts that are taken once for each sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from structattn.metrics.translation import bleu_metric, sacrebleu_module

ORDER = 4


@dataclass(frozen=True)
class BleuStatistics:
    """What BLEU needs of each sentence, as sacrebleu counts it.

    Args:
        counts: matching n-grams for n = 1 to 4, n-grams for n = 1 to 4, words of the translation, of the reference.
    """

    counts: Int64[np.ndarray, "sentences 10"]

    @property
    def reference_words(self) -> Int64[np.ndarray, " sentences"]:
        """The words of each reference, as sacrebleu parts them."""
        return self.counts[:, 2 * ORDER + 1]

    def bleu(self, weights: Int64[np.ndarray, " sentences"]) -> float:
        """BLEU, 0 to 100, of a corpus in which each sentence occurs so many times."""
        return _bleu(weights @ self.counts)

    def resampled(self, drawn: Int64[np.ndarray, "samples sentences"]) -> Float[np.ndarray, " samples"]:
        """BLEU of several such corpora."""
        return np.array([_bleu(sums) for sums in drawn @ self.counts])


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str = "13a") -> BleuStatistics:
    """The counts of translations with one reference each.

    Raises:
        UsageError: sacrebleu is not installed.
        ValueError: there is not one reference for each translation.
    """
    # The effective order matters to scores alone; without it sacrebleu would warn of those of sentences, not used here.
    metric = bleu_metric(tokenizer, effective_order=True)
    found = [metric.sentence_score(line, [reference]) for line, reference in zip(hypotheses, references, strict=True)]
    rows = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in found]
    return BleuStatistics(np.array(rows, dtype=np.int64).reshape(-1, 2 * ORDER + 2))


def _bleu(sums: Int64[np.ndarray, " 10"]) -> float:
    *counts, words, reference_words = sums.tolist()
    compute = sacrebleu_module("sacrebleu.metrics").BLEU.compute_bleu
    return float(compute(counts[:ORDER], counts[ORDER:], words, reference_words, smooth_method="exp").score)
