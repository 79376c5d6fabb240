"""BLEU, chrF and TER as sacrebleu computes them, with its signatures, and the comparison of two systems."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structattn.support.errors import UsageError

METRICS = ("BLEU", "chrF2", "TER")


@dataclass(frozen=True)
class MetricScore:
    """A score of a corpus.

    Args:
        value: from 0 to 100; of TER, errors for 100 words, the fewer the better.
        interval: half of the 95 % interval, by bootstrap resampling of the lines (Koehn 2004).
        signature: sacrebleu's, which says how it was computed.
    """

    value: float
    interval: float
    signature: str


@dataclass(frozen=True)
class Difference:
    """How two systems differ on one metric, by paired bootstrap resampling (Koehn 2004).

    Args:
        first: the first system's score.
        second: the second system's.
        first_interval: half of the first one's 95 % interval.
        second_interval: half of the second one's.
        p: the probability of such a difference, or a greater one, if the systems were equally good.
        signature: sacrebleu's.
    """

    first: float
    second: float
    first_interval: float
    second_interval: float
    p: float
    signature: str


def sacrebleu_module(module: str) -> Any:
    """A module of sacrebleu.

    Raises:
        UsageError: sacrebleu is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"sacrebleu is not there ({error}); pip install 'structattn[mt]'") from None


def bleu_metric(tokenizer: str, **options: Any) -> Any:
    """BLEU as sacrebleu has it.

    Raises:
        UsageError: sacrebleu is not installed, or lacks what parts words in this way.
    """
    try:
        return sacrebleu_module("sacrebleu.metrics").BLEU(tokenize=tokenizer, **options)
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"evaluation.bleu_tokenizer: {tokenizer!r} does not work here: {error}") from None


def _metrics(tokenizer: str) -> dict[str, Any]:
    found = sacrebleu_module("sacrebleu.metrics")
    return {"BLEU": bleu_metric(tokenizer), "chrF2": found.CHRF(), "TER": found.TER()}


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], samples: int = 1000, tokenizer: str = "13a"
) -> dict[str, MetricScore]:
    """All metrics of a corpus with one reference for each line.

    Args:
        hypotheses: translations, one a line.
        references: one for each.
        samples: resampled corpora, at least 2; sacrebleu draws them from a fixed seed.
        tokenizer: sacrebleu's name of how BLEU parts words.

    Raises:
        UsageError: sacrebleu is not installed, or there is not one reference for each hypothesis.
    """
    _require_as_many(hypotheses, references)
    scores = {}
    for name, metric in _metrics(tokenizer).items():
        found = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=samples)
        interval = float(found._ci)  # sacrebleu shows it in texts only
        scores[name] = MetricScore(float(found.score), interval, str(metric.get_signature()))
    return scores


def compared(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    samples: int = 1000,
    tokenizer: str = "13a",
) -> Mapping[str, Difference]:
    """How two systems' translations of the same lines differ.

    Args:
        first: one system's.
        second: the other's.
        references: one for each line.
        samples: resampled corpora; sacrebleu draws them from a fixed seed.
        tokenizer: sacrebleu's name of how BLEU parts words.

    Raises:
        UsageError: sacrebleu is not installed, or there are not as many of each.
    """
    for hypotheses in (first, second):
        _require_as_many(hypotheses, references)
    test = sacrebleu_module("sacrebleu.significance").PairedTest(
        [("first", list(first)), ("second", list(second))],
        _metrics(tokenizer),
        references=[list(references)],
        test_type="bs",
        n_samples=samples,
    )
    signatures, results = test()
    found = {}
    for name, (one, other) in ((name, values) for name, values in results.items() if name != "System"):
        found[name] = Difference(
            first=float(one.score),  # some of the numbers are numpy's
            second=float(other.score),
            first_interval=float(one.ci or 0.0),
            second_interval=float(other.ci or 0.0),
            p=1.0 if one.score == other.score else float(other.p_value),  # sacrebleu counts greater differences only
            signature=str(signatures[name]),
        )
    return found


def _require_as_many(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UsageError(f"{len(hypotheses)} translations for {len(references)} references; expected as many")
