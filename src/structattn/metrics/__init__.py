"""Metrics and confidence intervals: numbers and texts in, numbers out.

- ``translation``: BLEU, chrF and TER with bootstrap intervals, and the comparison of two systems (sacrebleu).
- ``bleu_statistics``: BLEU of parts of a corpus from statistics of its sentences.
- ``proportions``: proportions with Wilson intervals.
- ``sample_statistics``: mean, standard deviation and confidence interval of a few numbers.
- ``t_distribution``: critical values of Student's t distribution.
- ``lower_bound``: the lowest cross-entropy on strings with known probabilities.
"""

from structattn.metrics.statistics import (
    Proportion,
    SampleStatistics,
    central_probability,
    critical_value,
    lower_bound,
    sample_statistics,
    wilson_interval,
)
from structattn.metrics.translation import (
    BleuStatistics,
    MetricScore,
    PairedDifference,
    bleu_statistics,
    compare_systems,
    corpus_scores,
)

__all__ = [
    "BleuStatistics",
    "MetricScore",
    "PairedDifference",
    "Proportion",
    "SampleStatistics",
    "bleu_statistics",
    "central_probability",
    "compare_systems",
    "corpus_scores",
    "critical_value",
    "lower_bound",
    "sample_statistics",
    "wilson_interval",
]
