"""Compare the cross-entropies of two language models on the same text, by paired bootstrap resampling."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.metrics.paired_likelihoods import CrossEntropyDifference, compare_cross_entropies
from structattn.runs.folder import RunFolder
from structattn.runs.store import write_analysis
from structattn.settings.training import StreamBatches
from structattn.support.environment import name_of
from structattn.support.errors import UsageError
from structattn.support.shapes import Int64
from structattn.tasks.language_modeling.evaluate import split_negative_log_likelihoods
from structattn.tasks.position_limits import require_positions_fit

KIND: Final = "likelihood_comparison"


def compare_likelihoods(
    base: Path, others: Sequence[Path], split: str, samples: int = 1000, data: Path | None = None
) -> list[CrossEntropyDifference]:
    """Score a base and other language models on a split, and write ``analyses/SPLIT-against-BASE.json`` to the others.

    Args:
        base: a run folder.
        others: further run folders.
        split: the split to score, by the checkpoints of the runs' evaluation settings.
        samples: the number of bootstrap samples; at least 40 for 95 % intervals.
        data: the prepared folder, if it was moved.

    Returns:
        The difference of each run from the base.

    Raises:
        UsageError: a run is not of a causal language model, or the runs do not predict the same tokens from the same
            windows.
        SettingsError: an example is longer than the learned positions of a model.
        StructattnError: a run, checkpoint or data are missing or damaged.
    """
    for folder in (base, *others):
        _require_language_model(folder)
    first = open_run(base, data=data)
    for folder in (base, *others):
        require_positions_fit(RunFolder(folder).read_settings(), first.prepared, [split])
    num_tokens = _tokens_per_example(first, split)
    losses = split_negative_log_likelihoods(first, split)
    differences = []
    for folder in others:
        second = open_run(folder, data=data)
        _check_same_targets(first, second)
        difference = compare_cross_entropies(losses, split_negative_log_likelihoods(second, split), num_tokens, samples)
        updates = {"base": first.averaged_updates, "run": second.averaged_updates}
        content = {"split": split, "base": name_of(base), "updates": updates, **asdict(difference)}
        write_analysis(folder, f"{split}-against-{name_of(base)}", KIND, content)
        differences.append(difference)
    return differences


def _require_language_model(folder: Path) -> None:
    task = RunFolder(folder).read_settings().task
    if task != "language_modeling":
        raise UsageError(
            f"{folder}: has task {task!r}; expected all runs to have language_modeling, or all translation. "
            "`structattn compare --by model` compares runs of any task by their scores"
        )


def _check_same_targets(first: TrainedRun, second: TrainedRun) -> None:
    if first.prepared.digest != second.prepared.digest:
        raise UsageError(
            f"{first.run_dir} and {second.run_dir} have different data, {first.prepared.path} and "
            f"{second.prepared.path}; expected the same tokens"
        )
    lengths = [_window(run) for run in (first, second)]
    if lengths[0] != lengths[1]:
        raise UsageError(
            f"training.batches.sequence_length: {lengths[0]} in {first.run_dir}, {lengths[1]} in {second.run_dir}; "
            "expected the same windows"
        )


def _window(run: TrainedRun) -> int | None:
    """Return the length of the windows of a stream; None for sequences."""
    batches = run.settings.training.batches
    return batches.sequence_length if isinstance(batches, StreamBatches) else None


def _tokens_per_example(run: TrainedRun, split: str) -> Int64[np.ndarray, " examples"]:
    """Return the number of predicted tokens of each sequence, ``<eos>`` included, or of each window."""
    sequences, window = run.prepared.split(split), _window(run)
    if window is None:
        return np.asarray(sequences.lengths, dtype=np.int64) + 1
    starts = np.arange(0, sequences.num_targets, window)
    return np.minimum(window, sequences.num_targets - starts)
