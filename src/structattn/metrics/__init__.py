"""Metrics and confidence intervals: numbers and texts in, numbers out.

- ``translation``: BLEU, chrF and TER with bootstrap intervals, and the comparison of two systems (sacrebleu).
- ``bleu_statistics``: BLEU of parts of a corpus from statistics of its sentences.
- ``proportions``: proportions with Wilson intervals.
- ``sample_statistics``: mean, standard deviation and confidence interval of a few numbers.
- ``t_distribution``: critical values of Student's t distribution.
- ``lower_bound``: the lowest cross-entropy on strings with known probabilities.
"""

from structattn.metrics.bleu_statistics import BleuStatistics, bleu_statistics
from structattn.metrics.lower_bound import lower_bound
from structattn.metrics.proportions import Proportion, wilson_interval
from structattn.metrics.sample_statistics import SampleStatistics, sample_statistics
from structattn.metrics.t_distribution import central_probability, critical_value
from structattn.metrics.translation import MetricScore, PairedDifference, compare_systems, corpus_scores

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
