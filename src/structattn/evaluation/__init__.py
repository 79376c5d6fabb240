"""Evaluation: scores of a trained run on held-out data, written to its run folder.

- ``evaluate``: score a run folder on a split; ``evaluate_run`` does so for a run that is already open.
- ``is_scored``: whether a run folder has the scores of a split.
- ``SplitScores``, ``LengthScore``: the scores of a split, and of its sequences of one length.
- ``compare_runs``, ``compare_runs_by_bin``: compare two translation runs by paired bootstrap.
- ``contrastive_scores``: accuracy on contrastive pairs.
- ``parsing_scores``: scores of the trees that a parser finds.
- ``probe_chunking``: scores of a linear layer that finds chunks in the hidden states of a run.
- ``ngram_baselines``: perplexities of interpolated n-gram models.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.evaluation.comparison import compare_runs, compare_runs_by_bin
    from structattn.evaluation.ngrams import ngram_baselines
    from structattn.evaluation.run_evaluation import evaluate, evaluate_run, is_scored
    from structattn.evaluation.scores import LengthScore, SplitScores
    from structattn.evaluation.suites.chunking import probe_chunking
    from structattn.evaluation.suites.contrastive import contrastive_scores
    from structattn.evaluation.suites.parsing import parsing_scores

__all__ = [
    "LengthScore",
    "SplitScores",
    "compare_runs",
    "compare_runs_by_bin",
    "contrastive_scores",
    "evaluate",
    "evaluate_run",
    "is_scored",
    "ngram_baselines",
    "parsing_scores",
    "probe_chunking",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "LengthScore": "structattn.evaluation.scores",
        "SplitScores": "structattn.evaluation.scores",
        "compare_runs": "structattn.evaluation.comparison",
        "compare_runs_by_bin": "structattn.evaluation.comparison",
        "contrastive_scores": "structattn.evaluation.suites.contrastive",
        "evaluate": "structattn.evaluation.run_evaluation",
        "evaluate_run": "structattn.evaluation.run_evaluation",
        "is_scored": "structattn.evaluation.run_evaluation",
        "ngram_baselines": "structattn.evaluation.ngrams",
        "parsing_scores": "structattn.evaluation.suites.parsing",
        "probe_chunking": "structattn.evaluation.suites.chunking",
    },
)
