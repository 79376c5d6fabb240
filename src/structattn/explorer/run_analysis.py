"""Record what the layers of a run do on examples of a split, in its run folder, after training or during it."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import cast

import torch

from structattn.explorer.recording import DEPTHS, record, record_examples
from structattn.explorer.recording_files import write_own_recording
from structattn.explorer.searched_text import require_example
from structattn.loading.runs import load
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import RunSettings
from structattn.support.files import create_folder
from structattn.tasks.loaded import TrainedModel
from structattn.text.folders.prepared import open_prepared
from structattn.training.start import ValidatedModel


def analyze(
    run_dir: str | PathLike[str],
    split: str = "test",
    examples: Sequence[int] = (0,),
    checkpoint: str | None = None,
    depths: int = DEPTHS,
    *,
    data: str | PathLike[str] | None = None,
    device: str | torch.device = "auto",
) -> Path:
    """Record what every layer of a run's model does on examples of a split; write ``records/SPLIT.json`` to its folder.

    Args:
        run_dir: a run folder.
        split: a split of its prepared folder.
        examples: indices of sequences in file order; of windows, if the data are a stream; of pairs, for translation,
            which are explained under teacher forcing.
        checkpoint: ``best``, ``last``, or ``best-K`` or ``last-K`` for the average of the weights of K checkpoints; by
            default the checkpoint in the run's evaluation settings.
        depths: the number of depths of stacks whose contents are computed, from the top; 0: none.
        data: the prepared folder; None: the path in the settings of the run.
        device: of the model, for instance ``cpu`` or ``cuda``; ``auto``: a GPU if there is one.

    Returns:
        The path of the file, which ``read_recording`` reads.

    Raises:
        UsageError: the split has no such example, or the example is longer than 1,024 tokens; the device is not there.
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
    """
    run = load(run_dir, checkpoint, device, data=data)
    return analyze_run(run, split, examples, depths)


def analyze_run(run: TrainedRun, split: str, examples: Sequence[int] = (0,), depths: int = DEPTHS) -> Path:
    """Record what a run does that is already open; see ``analyze``."""
    recording = record(run, examples=examples, split=split, depths=depths)
    path = run.run_dir / "records" / f"{split}.json"
    create_folder(path.parent)
    write_own_recording(path, recording)
    return path


@dataclass(frozen=True)
class TrainingRecorder:
    """Records examples before the first update and at each validation, in ``records/updates/UPDATE.json`` of the run.

        train(settings, "runs/dyck", on_validation=TrainingRecorder((17, 18)))

    Args:
        examples: indices of sequences of the split in file order; of windows of a stream; of pairs.
        split: a split of the prepared folder.
        depths: the number of depths of stacks whose contents are computed, from the top; 0: none.
    """

    examples: tuple[int, ...]
    split: str = "valid"
    depths: int = DEPTHS

    def check(self, settings: RunSettings) -> None:
        """Check that the data of a run have the examples, before it trains.

        Raises:
            UsageError: they do not.
            DataError: the prepared folder is missing or damaged.
        """
        prepared = open_prepared(settings.data)
        for example in self.examples:
            require_example(settings, prepared, self.split, example)

    def __call__(self, validated: ValidatedModel) -> None:
        """Record the examples.

        Raises:
            UsageError: the split has no such example, or an example has more than 1,024 tokens.
        """
        model = cast(TrainedModel, validated.model)
        run = TrainedRun(validated.run_dir, validated.settings, validated.prepared, model, validated.update)
        path = run.run_dir / "records" / "updates" / f"{run.update}.json"
        recording = record_examples(run, self.examples, self.split, self.depths)
        create_folder(path.parent)
        write_own_recording(path, recording)
