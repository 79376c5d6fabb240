"""Evaluate a trained run on a split and write the scores to its run folder."""

from os import PathLike
from pathlib import Path

import torch

from structattn.loading.description import describe_data, describe_model
from structattn.loading.runs import load
from structattn.loading.trained_run import TrainedRun
from structattn.runs.checkpoint import update_of
from structattn.runs.folder import RunFolder
from structattn.runs.selection import checkpoints_of
from structattn.runs.store import scores_path
from structattn.support.devices import count_parameters
from structattn.support.errors import CheckpointError
from structattn.support.files import create_folder
from structattn.support.json_files import read_json, write_json
from structattn.tasks.position_limits import require_positions_fit
from structattn.tasks.registry import kind_of
from structattn.tasks.scores import SplitScores, scores_to_json


def evaluate(
    run_dir: str | PathLike[str],
    split: str = "test",
    checkpoint: str | None = None,
    *,
    data: str | PathLike[str] | None = None,
    device: str | torch.device = "auto",
    batch_tokens: int = 8192,
    baselines: bool = True,
) -> SplitScores:
    """Evaluate a trained run on a split and write ``scores/SPLIT.json`` to its folder, atomically.

    Sums over batches are in float64, so the scores depend on ``batch_tokens`` only through the rounding of terms; with
    ``evaluation.dropout``, also through the masks that are drawn for each batch.

    Args:
        run_dir: a run folder.
        split: a split of its prepared folder.
        checkpoint: ``best`` (by the run's selection metric), ``last``, or ``best-K`` or ``last-K`` for the average of
            the weights of K checkpoints; by default the checkpoint in the run's evaluation settings.
        data: the prepared folder; None: the path in the settings of the run.
        device: of the model, for instance ``cpu`` or ``cuda``; ``auto``: a GPU if there is one.
        batch_tokens: the maximal padded size of a batch.
        baselines: for text, whether to add the scores of n-gram models.

    Returns:
        The scores: cross-entropy and perplexity, and others depending on the task.

    Raises:
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
        UsageError: the device is not there.
    """
    run = load(run_dir, checkpoint, device, data=data)
    return evaluate_run(run, split, batch_tokens=batch_tokens, baselines=baselines)


def is_scored(run_dir: str | PathLike[str], split: str) -> bool:
    """Return whether a split has scores of the checkpoints that the run's evaluation settings name.

    If those checkpoints are gone, any scores count.
    """
    run_dir = Path(run_dir)
    path = scores_path(run_dir, split)
    if not path.exists():
        return False
    try:
        wanted = checkpoints_of(run_dir, RunFolder(run_dir).read_settings().evaluation.checkpoint)
    except CheckpointError:
        return True
    return bool(read_json(path, "scores").get("checkpoints") == [update_of(each) for each in wanted])


def evaluate_run(run: TrainedRun, split: str, *, batch_tokens: int = 8192, baselines: bool = True) -> SplitScores:
    """Evaluate a run that is already open; see ``evaluate``."""
    require_positions_fit(run.settings, run.prepared, [split])
    kind = kind_of(run)
    scores = kind.evaluate(run, split, batch_tokens)
    content = scores_to_json(
        scores,
        update=run.update,
        checkpoints=run.averaged_updates,
        parameters=count_parameters(run.model),
        model=describe_model(run.settings.model),
        data=describe_data(run.prepared),
        baselines=kind.baselines(run, split) if baselines and kind.baselines is not None else None,
        prepared_digest=run.prepared.digest,
    )
    path = scores_path(run.run_dir, split)
    create_folder(path.parent)
    write_json(path, "scores", content)
    return scores
