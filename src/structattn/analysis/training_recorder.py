"""Recordings of chosen examples while a run trains."""

from dataclasses import dataclass
from typing import cast

from structattn.analysis.examples import require_example
from structattn.analysis.recording import DEPTHS, record_examples
from structattn.analysis.recording_files import write_recording
from structattn.data.folders import open_prepared
from structattn.inference.explanations import TrainedModel
from structattn.inference.trained_run import TrainedRun
from structattn.settings.run import RunSettings
from structattn.support.files import create_folder
from structattn.training.start import ValidatedModel


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
        write_recording(path, recording)
