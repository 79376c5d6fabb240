"""BLEU of parts of a corpus from n-gram statistics that are computed once per sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from structattn.metrics.translation import bleu_metric, import_sacrebleu

ORDER = 4


@dataclass(frozen=True)
class BleuStatistics:
    """The statistics of each sentence from which sacrebleu computes BLEU.

    Args:
        counts: matching n-grams for n = 1 to 4, all n-grams for n = 1 to 4, and the numbers of words of the translation
            and of the reference.
    """

    counts: Int64[np.ndarray, "sentences 10"]

    @property
    def reference_words(self) -> Int64[np.ndarray, " sentences"]:
        """The number of words of each reference, as tokenized by sacrebleu."""
        return self.counts[:, 2 * ORDER + 1]

    def bleu(self, weights: Int64[np.ndarray, " sentences"]) -> float:
        """Return BLEU, 0 to 100, of a corpus that repeats each sentence ``weights`` times."""
        return _bleu(weights @ self.counts)

    def resampled(self, drawn: Int64[np.ndarray, "samples sentences"]) -> Float[np.ndarray, " samples"]:
        """Return BLEU of several such corpora, one per row of weights."""
        return np.array([_bleu(sums) for sums in drawn @ self.counts])


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str = "13a") -> BleuStatistics:
    """Compute the statistics of translations with one reference each.

    Args:
        hypotheses: the translations.
        references: one for each translation.
        tokenizer: sacrebleu's name of the tokenizer.

    Raises:
        UsageError: sacrebleu is not installed.
        ValueError: the numbers of translations and references differ.
    """
    # The effective order changes only the score, which is not used; without it sacrebleu warns about sentence scores.
    metric = bleu_metric(tokenizer, effective_order=True)
    found = [metric.sentence_score(line, [reference]) for line, reference in zip(hypotheses, references, strict=True)]
    rows = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in found]
    return BleuStatistics(np.array(rows, dtype=np.int64).reshape(-1, 2 * ORDER + 2))


def _bleu(sums: Int64[np.ndarray, " 10"]) -> float:
    *counts, words, reference_words = sums.tolist()
    compute = import_sacrebleu("sacrebleu.metrics").BLEU.compute_bleu
    return float(compute(counts[:ORDER], counts[ORDER:], words, reference_words, smooth_method="exp").score)
