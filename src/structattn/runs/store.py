"""The checkpoints of a run: one is always good, the newest and the best are kept."""

import json
import logging
import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from structattn.runs.checkpoint import (
    DamagedCheckpointError,
    Identity,
    read_checkpoint,
    read_manifest,
    read_state_file,
    write_checkpoint,
)
from structattn.runs.state import Progress, TrainingState
from structattn.support.files import flush_to_disk, write_atomically, write_folder_atomically

logger = logging.getLogger(__name__)

# UPDATE is a checkpoint; .UPDATE.oldN is one that is being replaced by another of the same update, and still good
_CHECKPOINT = re.compile(r"(?:([0-9]{1,18})|\.([0-9]{1,18})\.old[0-9]+)")


PASSING = "passing"  # a file in a checkpoint that was saved because the run was interrupted


@dataclass(frozen=True)
class CheckpointStore:
    """The folder of a run's checkpoints.

    Args:
        folder: holds one folder per checkpoint, named by its update.
        identity: what they must belong to.
        keep: how many of the newest are kept.
        best_path: the file that names the best one.
        besides: tells further updates whose checkpoints are kept.
    """

    folder: Path
    identity: Identity
    keep: int
    best_path: Path
    besides: Callable[[], Collection[int]] = tuple

    def save(self, state: TrainingState, passing: bool = False) -> None:
        """Write a checkpoint whole or not at all; then, and only then, let go of older ones.

        Args:
            state: of the run.
            passing: it is saved because the run is interrupted, and goes with the next save: which checkpoints are
                there in the end does not tell whether a run was ever interrupted.
        """
        target = self.folder / str(state.progress.update)
        with write_folder_atomically(target) as temporary:
            write_checkpoint(temporary, state, self.identity)
            if passing:
                (temporary / PASSING).touch()
            retired = _retire(target)
        if retired:
            shutil.rmtree(retired)
        self.name_best(state.progress)
        self._prune()

    def newest(self) -> TrainingState | None:
        """The newest complete checkpoint, None if none was ever written.

        A damaged one is reported, put aside and passed over.

        Raises:
            CheckpointError: all of them are damaged, or one belongs to other settings or data.
        """
        problem = None
        for path in self._newest_first():
            try:
                state = read_checkpoint(path, self.identity)
            except DamagedCheckpointError as error:
                problem = error
                logger.warning("%s; falling back to the checkpoint before it", error)
            else:
                self._put_aside_newer_than(path)
                path.rename(path.with_name(str(state.progress.update)))
                return state
        if problem:
            raise DamagedCheckpointError(f"no checkpoint is left that is whole; the oldest: {problem}")
        return None

    def name_best(self, progress: Progress) -> None:
        """Make the file that names the best checkpoint say what the progress says."""
        if progress.best_update is None:
            self.best_path.unlink(missing_ok=True)
            return
        content = json.dumps({"update": progress.best_update, "score": progress.best_score}) + "\n"
        if not self.best_path.exists() or self.best_path.read_text(encoding="utf-8") != content:
            write_atomically(self.best_path, content)

    def clean(self) -> None:
        """Make the folder, and remove what an interrupted save left in it."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            if path.is_dir() and path.name.startswith(".") and not _CHECKPOINT.fullmatch(path.name):
                shutil.rmtree(path)

    def _newest_first(self) -> list[Path]:
        found = [(path, match) for path in self.folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))]
        found.sort(key=lambda item: (int(item[1][1] or item[1][2]), item[1][1] is not None), reverse=True)
        return [path for path, _ in found]

    def _put_aside_newer_than(self, good: Path) -> None:
        for path in self._newest_first():
            if path == good:
                return
            path.rename(path.with_name(f".{path.name.strip('.')}.damaged"))

    def _prune(self) -> None:
        checkpoints = self._newest_first()
        whole = [path for path in checkpoints if not path.name.startswith(".")]
        to_stay = [path for path in whole if not (path / PASSING).exists()][: self.keep]
        kept = {*whole[:1], *to_stay}
        # should the newest be damaged one day, the one before it names an older best
        names = {path.name for path in kept} | {_best_named_by(path) for path in kept}
        names |= {str(update) for update in self.besides()}
        for path in checkpoints:
            if path.name not in names:
                shutil.rmtree(path)


def checkpoint_updates(folder: Path) -> list[int]:
    """The updates of which a folder holds a checkpoint, complete or not."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [int(name) for name in names if _CHECKPOINT.fullmatch(name) and not name.startswith(".")]


def _best_named_by(path: Path) -> str | None:
    try:
        update = read_state_file(path, read_manifest(path)).progress.best_update
    except DamagedCheckpointError:
        return None
    return None if update is None else str(update)


def _retire(target: Path) -> Path | None:
    """Rename a checkpoint that stands where a new one will, in such a way that it can still be loaded."""
    if not target.exists():
        return None
    number = 1
    while (retired := target.with_name(f".{target.name}.old{number}")).exists():
        number += 1
    target.rename(retired)
    flush_to_disk(target.parent)
    return retired
