"""Record what the layers of a run do on examples of a split, in its run folder."""

from collections.abc import Sequence
from pathlib import Path

from structattn.explorer.recording import DEPTHS, record
from structattn.explorer.recording_files import write_recording
from structattn.loading.load import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.support.files import create_folder


def analyze(
    run_dir: Path,
    split: str = "test",
    examples: Sequence[int] = (0,),
    checkpoint: str | None = None,
    depths: int = DEPTHS,
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

    Returns:
        The path of the file, which ``read_recording`` reads.

    Raises:
        UsageError: the split has no such example, or the example is longer than 1,024 tokens.
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
    """
    return analyze_run(open_run(run_dir, checkpoint), split, examples, depths)


def analyze_run(run: TrainedRun, split: str, examples: Sequence[int] = (0,), depths: int = DEPTHS) -> Path:
    """Record what a run does that is already open; see ``analyze``."""
    recording = record(run, examples=examples, split=split, depths=depths)
    path = run.run_dir / "records" / f"{split}.json"
    create_folder(path.parent)
    write_recording(path, recording)
    return path
