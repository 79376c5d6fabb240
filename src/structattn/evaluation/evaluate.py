"""Scores a run's model on a split of its data, and keeps the scores in the run folder."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from structattn.data.folders.prepared import PreparedFolder
from structattn.evaluation.cross_entropy import Nats, sequence_nats, stream_nats
from structattn.evaluation.dependencies import dependency_scores, has_dependencies
from structattn.evaluation.description import describe_data, describe_model
from structattn.evaluation.ngrams import ngram_baselines
from structattn.evaluation.scores import SplitScores, scores_of, scores_to_json
from structattn.evaluation.transduction import transduction_scores
from structattn.evaluation.translation import translation_scores
from structattn.inference.checkpoints import checkpoints_of
from structattn.inference.runs import TrainedRun, open_run
from structattn.runs.folder import RunFolder
from structattn.settings.run import load_settings
from structattn.settings.training import StreamBatches
from structattn.support.errors import CheckpointError, DataError
from structattn.support.files import write_atomically
from structattn.training.position_limits import require_positions_that_reach

BATCH_TOKENS = 8192


def nats_of_split(run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS) -> Nats:
    """-log p of every sequence of a split; of every window, where the data are a stream."""
    sequences = run.prepared.split(split)
    if not len(sequences):
        raise DataError(run.prepared.path / split, "holds no sequences to score")
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return stream_nats(run.model, sequences, batches.length, batch_tokens, split)
    return sequence_nats(run.model, sequences, batch_tokens, split)


def baselines_of(prepared: PreparedFolder, split: str) -> dict[str, dict[str, Any]] | None:
    """What n-gram models reach on a split of text; None elsewhere."""
    if prepared.kind in ("formal_language", "transduction", "parallel"):
        return None
    found = ngram_baselines(prepared, split)
    return {name: {"cross_entropy": math.log(score["perplexity"]), **score} for name, score in found.items()}


def evaluate(
    folder: Path, split: str, checkpoint: str | None = None, *, batch_tokens: int = BATCH_TOKENS, baselines: bool = True
) -> SplitScores:
    """Score a run on a split and write ``scores/SPLIT.json`` into its folder, whole or not at all.

    The scores do not depend on ``batch_tokens`` beyond the rounding of single terms: all sums are in float64.

    Args:
        folder: a run folder.
        split: a split of its prepared folder.
        checkpoint: ``best`` (by what the run is selected by), ``last``, or ``best-K`` or ``last-K`` for the mean of the
            weights of K of them; what the run's settings say, if left out.
        batch_tokens: the largest padded size of a batch.
        baselines: whether n-gram models are counted beside it, for text.

    Raises:
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
    """
    return evaluate_run(open_run(folder, checkpoint), split, batch_tokens=batch_tokens, baselines=baselines)


def is_scored(folder: Path, split: str) -> bool:
    """Whether the scores of a split are there, of the checkpoints that the run's settings mean.

    Where these are gone, whatever scores are there count.
    """
    path = folder / "scores" / f"{split}.json"
    if not path.exists():
        return False
    try:
        meant = checkpoints_of(folder, load_settings(RunFolder(folder).settings).evaluation.checkpoint)
    except CheckpointError:
        return True
    return bool(json.loads(path.read_bytes()).get("checkpoints") == [int(each.name) for each in meant])


def _split_scores(run: TrainedRun, split: str, batch_tokens: int) -> SplitScores:
    if run.prepared.kind == "transduction":
        return transduction_scores(run, split, batch_tokens)
    if run.prepared.kind == "parallel":
        return translation_scores(run, split, batch_tokens)
    scores = scores_of(run.prepared, split, nats_of_split(run, split, batch_tokens))
    return replace(scores, dependencies=dependency_scores(run, split)) if has_dependencies(run.prepared) else scores


def evaluate_run(
    run: TrainedRun, split: str, *, batch_tokens: int = BATCH_TOKENS, baselines: bool = True
) -> SplitScores:
    """Do what `evaluate` does for a run that is open already."""
    require_positions_that_reach(run.settings, run.prepared, [split])
    scores = _split_scores(run, split, batch_tokens)
    content = scores_to_json(
        scores,
        update=run.update,
        checkpoints=run.checkpoints,
        parameters=sum(parameter.numel() for parameter in run.model.parameters()),
        model=describe_model(run.settings.model),
        data=describe_data(run.prepared),
        baselines=baselines_of(run.prepared, split) if baselines else None,
        prepared_digest=run.prepared.digest,
    )
    target = run.folder / "scores"
    target.mkdir(exist_ok=True)
    write_atomically(target / f"{split}.json", content)
    return scores
