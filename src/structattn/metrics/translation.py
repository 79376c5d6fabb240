"""BLEU, chrF and TER with bootstrap intervals (sacrebleu), and BLEU of parts of a corpus from sentence statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from structattn.support.errors import UsageError
from structattn.support.imports import import_library
from structattn.support.shapes import Float, Int64

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

    Raises:
        UsageError: sacrebleu is not installed.
        ValueError: the numbers of translations and references differ.
    """
    # The effective order changes only the score, which is not used; without it sacrebleu warns about sentence scores.
    metric = bleu_metric(tokenizer, effective_order=True)
    scores = [metric.sentence_score(line, [reference]) for line, reference in zip(hypotheses, references, strict=True)]
    rows = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]
    return BleuStatistics(np.array(rows, dtype=np.int64).reshape(-1, 2 * ORDER + 2))


def _bleu(sums: Int64[np.ndarray, " 10"]) -> float:
    *counts, words, reference_words = sums.tolist()
    compute = import_sacrebleu("sacrebleu.metrics").BLEU.compute_bleu
    return float(compute(counts[:ORDER], counts[ORDER:], words, reference_words, smooth_method="exp").score)


METRICS = ("BLEU", "chrF2", "TER")


@dataclass(frozen=True)
class MetricScore:
    """The score of a corpus.

    Args:
        value: from 0 to 100; for TER, edits per 100 words, where lower is better.
        interval: half the width of the 95 % interval, by bootstrap resampling of the lines (Koehn 2004).
        signature: sacrebleu's signature, which describes how the score was computed.
    """

    value: float
    interval: float
    signature: str


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two systems on one metric, by paired bootstrap resampling (Koehn 2004).

    Args:
        first_interval: half the width of the first system's 95 % interval.
        p: the p-value: the probability of a difference at least this large if the systems are equally good.
    """

    first: float
    second: float
    first_interval: float
    second_interval: float
    p: float
    signature: str


def import_sacrebleu(module: str) -> Any:
    """Import a module of sacrebleu.

    Raises:
        UsageError: sacrebleu is not installed.
    """
    return import_library(module, "mt", "BLEU, chrF or TER")


def bleu_metric(tokenizer: str, **options: Any) -> Any:
    """Create sacrebleu's BLEU metric.

    Raises:
        UsageError: sacrebleu is not installed, there is no such tokenizer, or it needs a library that is not.
    """
    try:
        return import_sacrebleu("sacrebleu.metrics").BLEU(tokenize=tokenizer, **options)
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"evaluation.bleu_tokenizer: {tokenizer!r} is not available: {error}") from None
    except KeyError:
        raise UsageError(f"tokenizer is {tokenizer!r}; expected one of sacrebleu, such as '13a'") from None


def _metrics(tokenizer: str) -> dict[str, Any]:
    library = import_sacrebleu("sacrebleu.metrics")
    metrics = {"BLEU": bleu_metric(tokenizer), "chrF2": library.CHRF(), "TER": library.TER()}
    return {name: _with_float_scores(metric) for name, metric in metrics.items()}


def _with_float_scores(metric: Any) -> Any:
    """Make a metric of sacrebleu compute floats: its bootstrap cannot average a mixture of them and NumPy's float32."""
    compute = metric._compute_score_from_stats

    def compute_float(statistics: Any) -> Any:
        score = compute(statistics)
        score.score = float(score.score)
        return score

    metric._compute_score_from_stats = compute_float
    return metric


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], samples: int = 1000, tokenizer: str = "13a"
) -> dict[str, MetricScore]:
    """Compute all ``METRICS`` of a corpus with one reference per line: metric -> score.

    Args:
        hypotheses: the translations.
        references: one for each translation.
        samples: the number of bootstrap samples, at least 2; sacrebleu draws them with a fixed seed.
        tokenizer: sacrebleu's name of the tokenizer of BLEU.

    Raises:
        UsageError: sacrebleu is not installed, there is no translation or fewer than two samples, or the numbers of
            translations and references differ.
    """
    _require_samples(samples)
    _check_numbers(hypotheses, references)
    scores = {}
    for name, metric in _metrics(tokenizer).items():
        result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=samples)
        interval = float(result._ci)  # sacrebleu exposes it only in formatted output
        scores[name] = MetricScore(float(result.score), interval, str(metric.get_signature()))
    return scores


def compare_systems(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    tokenizer: str = "13a",
) -> Mapping[str, PairedDifference]:
    """Compare two systems' translations of the same lines by all ``METRICS``: metric -> difference.

    Args:
        first: the translations of the first system.
        second: the translations of the second system.
        references: one for each line.
        samples: the number of bootstrap samples, at least 2; sacrebleu draws them with a fixed seed.
        tokenizer: sacrebleu's name of the tokenizer of BLEU.

    Raises:
        UsageError: sacrebleu is not installed, there is no line or fewer than two samples, or the numbers of lines
            differ.
    """
    _require_samples(samples)
    for hypotheses in (first, second):
        _check_numbers(hypotheses, references)
    test = import_sacrebleu("sacrebleu.significance").PairedTest(
        [("first", list(first)), ("second", list(second))],
        _metrics(tokenizer),
        references=[list(references)],
        test_type="bs",
        n_samples=samples,
    )
    signatures, results = test()
    differences = {}
    for name, (one, other) in ((name, values) for name, values in results.items() if name != "System"):
        differences[name] = PairedDifference(
            first=float(one.score),  # some are numpy numbers
            second=float(other.score),
            first_interval=float(one.ci or 0.0),
            second_interval=float(other.ci or 0.0),
            # sacrebleu counts only strictly greater differences, and all its samples of one line are that line.
            p=1.0 if one.score == other.score or len(references) == 1 else float(other.p_value),
            signature=str(signatures[name]),
        )
    return differences


def _require_samples(samples: int) -> None:
    if samples < 2:
        raise UsageError(f"samples is {samples}; expected at least 2")


def _check_numbers(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise UsageError("translations or references are one string; expected a list of strings")
    if not hypotheses and not references:
        raise UsageError("there are no translations; expected at least one")
    if len(hypotheses) != len(references):
        raise UsageError(f"{len(hypotheses)} translations for {len(references)} references; expected equally many")
