"""Evaluate a trained run on a split and write the scores to its run folder."""

import math
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from structattn.loading.description import describe_data, describe_model
from structattn.loading.load import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.runs.folder import RunFolder
from structattn.runs.selection import checkpoints_of
from structattn.runs.store import update_of
from structattn.settings.tasks import MASKED_LANGUAGE_MODELING
from structattn.settings.training import StreamBatches
from structattn.support.errors import CheckpointError, DataError
from structattn.support.files import create_folder
from structattn.support.json_files import read_json, write_json
from structattn.tasks.formal_languages.dependencies import dependency_scores, has_dependencies
from structattn.tasks.language_modeling.evaluate import (
    NegativeLogLikelihoods,
    sequence_negative_log_likelihoods,
    window_negative_log_likelihoods,
)
from structattn.tasks.language_modeling.ngrams import ngram_baselines
from structattn.tasks.masked.evaluate import masked_scores
from structattn.tasks.position_limits import require_positions_fit
from structattn.tasks.split_scores import SplitScores, make_split_scores, make_text_scores, scores_to_json
from structattn.tasks.transductions.evaluate import transduction_scores
from structattn.tasks.transformations.evaluate import transformation_of, transformation_scores
from structattn.tasks.translation.evaluate import translation_scores

BATCH_TOKENS = 8192


def split_negative_log_likelihoods(
    run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS
) -> NegativeLogLikelihoods:
    """Return -log p of every sequence of a split; of every window, if the data are a stream."""
    sequences = run.prepared.split(split)
    if not len(sequences):
        raise DataError(run.prepared.path / split, "has no sequences to score")
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return window_negative_log_likelihoods(run.accelerated, sequences, batches.sequence_length, batch_tokens, split)
    return sequence_negative_log_likelihoods(run.accelerated, sequences, batch_tokens, split)


def text_baselines(run: TrainedRun, split: str) -> dict[str, dict[str, Any]] | None:
    """Return the scores of n-gram models on a split of text; None for other tasks than causal language modeling."""
    if run.settings.task != "language_modeling":
        return None
    found = ngram_baselines(run.prepared, split)
    return {name: {"cross_entropy": math.log(score["perplexity"]), **score} for name, score in found.items()}


def evaluate(
    run_dir: str | PathLike[str],
    split: str = "test",
    checkpoint: str | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    baselines: bool = True,
) -> SplitScores:
    """Evaluate a trained run on a split and write ``scores/SPLIT.json`` to its folder, atomically.

    All sums are in float64, so the scores depend on ``batch_tokens`` only through the rounding of single terms.

    Args:
        run_dir: a run folder.
        split: a split of its prepared folder.
        checkpoint: ``best`` (by the run's selection metric), ``last``, or ``best-K`` or ``last-K`` for the average of
            the weights of K checkpoints; by default the checkpoint in the run's evaluation settings.
        batch_tokens: the maximal padded size of a batch.
        baselines: for text, whether to add the scores of n-gram models.

    Returns:
        The scores: cross-entropy and perplexity, and others depending on the task.

    Raises:
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
    """
    return evaluate_run(open_run(Path(run_dir), checkpoint), split, batch_tokens=batch_tokens, baselines=baselines)


def is_scored(run_dir: Path, split: str) -> bool:
    """Return whether a split has scores of the checkpoints that the run's evaluation settings name.

    If those checkpoints are gone, any scores count.
    """
    path = run_dir / "scores" / f"{split}.json"
    if not path.exists():
        return False
    try:
        wanted = checkpoints_of(run_dir, RunFolder(run_dir).read_settings().evaluation.checkpoint)
    except CheckpointError:
        return True
    return bool(read_json(path, "scores").get("checkpoints") == [update_of(each) for each in wanted])


def _split_scores(run: TrainedRun, split: str, batch_tokens: int) -> SplitScores:
    causal = run.settings.task != MASKED_LANGUAGE_MODELING
    scores = _task_scores(run, split, batch_tokens)
    scores = replace(scores, text=make_text_scores(run.prepared, split, scores.cross_entropy if causal else None))
    if split == "train" or not causal or transformation_of(run.prepared) is None:
        return scores
    return replace(scores, transformation=transformation_scores(run, split))


def _task_scores(run: TrainedRun, split: str, batch_tokens: int) -> SplitScores:
    if run.prepared.kind == "transduction":
        return transduction_scores(run, split, batch_tokens)
    if run.prepared.kind == "parallel":
        return translation_scores(run, split, batch_tokens)
    if run.settings.task == MASKED_LANGUAGE_MODELING:
        return masked_scores(run, split, batch_tokens)
    scores = make_split_scores(run.prepared, split, split_negative_log_likelihoods(run, split, batch_tokens))
    return replace(scores, dependencies=dependency_scores(run, split)) if has_dependencies(run.prepared) else scores


def evaluate_run(
    run: TrainedRun, split: str, *, batch_tokens: int = BATCH_TOKENS, baselines: bool = True
) -> SplitScores:
    """Evaluate a run that is already open; see ``evaluate``."""
    require_positions_fit(run.settings, run.prepared, [split])
    scores = _split_scores(run, split, batch_tokens)
    content = scores_to_json(
        scores,
        update=run.update,
        checkpoints=run.averaged_updates,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        model=describe_model(run.settings.model),
        data=describe_data(run.prepared),
        baselines=text_baselines(run, split) if baselines else None,
        prepared_digest=run.prepared.digest,
    )
    target = run.run_dir / "scores"
    create_folder(target)
    write_json(target / f"{split}.json", "scores", content)
    return scores
