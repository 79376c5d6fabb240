"""Metrics and confidence intervals: numbers and texts in, numbers out.

BLEU, chrF and TER with the comparison of two systems, Wilson and t intervals, and the lowest cross-entropy on strings
with known probabilities are exported; the others stand in their modules.
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
