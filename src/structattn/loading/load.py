"""Load a trained run by the path of its folder."""

from os import PathLike
from pathlib import Path

import torch

from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun


def load(
    run_dir: str | PathLike[str],
    checkpoint: str = "best",
    device: str | torch.device = "auto",
    *,
    data: str | PathLike[str] | None = None,
) -> TrainedRun:
    """Load a trained run of any kind; the digests of its weights and of its data are verified.

    Example::

        run = structattn.load("runs/dyck")
        run.settings, run.metadata, run.model
        for generation in run.generate(n=10)[0]:
            print(generation.text, generation.log_probability)
        for record in run.explain(["(())"])[0]:
            print(record.layer, record.head, record.weights)

    Args:
        run_dir: the run folder, made by ``structattn train``.
        checkpoint: ``best`` or ``last``; ``best-K`` or ``last-K`` for the average of the weights of K checkpoints.
        device: of the model, for instance ``cpu`` or ``cuda``; ``auto``: a GPU if there is one.
        data: the prepared folder; None: the path in the settings of the run.

    Returns:
        The run, with ``settings``, ``metadata`` (the run card) and ``model`` (in evaluation mode); and, as its kind
        allows, ``generate``, ``score``, ``translate``, ``predict``, ``embed`` and ``explain``: see ``TrainedRun``.

    Raises:
        StructattnError: the folder is not a run folder.
        UsageError: ``checkpoint`` is none of the above.
        CheckpointError: the checkpoint is missing or damaged, or belongs to other data or another model.
        DataError: the prepared folder is missing or damaged.
    """
    chosen = None if device == "auto" else torch.device(device)
    return open_run(Path(run_dir), checkpoint, data=None if data is None else Path(data), device=chosen)
