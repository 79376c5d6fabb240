"""Checkpoints and analyses of a run: written atomically; of checkpoints the newest and the best are kept."""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structattn.runs.checkpoint import (
    DamagedCheckpointError,
    Identity,
    Progress,
    TrainingState,
    read_checkpoint,
    read_manifest,
    read_state_file,
    update_of,
    write_checkpoint,
)
from structattn.support.errors import DataError, StructattnError
from structattn.support.files import (
    create_folder,
    create_folder_unflushed,
    remove_file_unflushed,
    remove_folders,
    remove_leftover_folder,
    rename_unflushed,
    replace_file,
    sha256_of_file,
    write_folder_atomically,
    write_unflushed,
)
from structattn.support.json_files import json_with_digest, read_json, write_json
from structattn.support.locks import remove_abandoned_folders
from structattn.support.reading import read_bytes

logger = logging.getLogger(__name__)

# UPDATE is a checkpoint; .UPDATE.oldN is one that is being replaced by a new one of the same update, still loadable
_CHECKPOINT = re.compile(r"(?:([0-9]{1,18})|\.([0-9]{1,18})\.old[0-9]+)")

TEMPORARY = "passing"  # marker file in a checkpoint that was saved because the run was interrupted


@dataclass(frozen=True)
class CheckpointStore:
    """Save, load and prune the checkpoints of a run.

    Args:
        folder: contains one folder per checkpoint, named by its update.
        identity: digests of settings and data that checkpoints must have.
        keep: number of newest checkpoints to keep.
        best_path: the file that names the best checkpoint.
        protected_updates: returns further updates whose checkpoints are kept.
    """

    folder: Path
    identity: Identity
    keep: int
    best_path: Path
    protected_updates: Callable[[], Collection[int]] = tuple

    def save(self, state: TrainingState, temporary: bool = False) -> None:
        """Write a checkpoint atomically, then delete the checkpoints that are no longer needed.

        Args:
            state: the training state.
            temporary: the run is being interrupted; the next save deletes this checkpoint, so that the final set of
                checkpoints does not depend on interruptions.
        """
        target = self.folder / str(state.progress.update)
        with write_folder_atomically(target, previous=_unused_old_name(target)) as new_folder:
            write_checkpoint(new_folder, state, self.identity)
            if temporary:
                write_unflushed(new_folder / TEMPORARY, b"")
        self.write_best(state.progress)
        self._prune()

    def newest(self) -> TrainingState | None:
        """Load the newest intact checkpoint; None if there are no checkpoints.

        Damaged checkpoints are logged, renamed and skipped.

        Raises:
            CheckpointError: all checkpoints are damaged, or one was written with other settings or data.
        """
        problem = None
        for path in self._newest_first():
            try:
                state = read_checkpoint(path, self.identity)
            except DamagedCheckpointError as error:
                problem = error
                logger.warning("%s; falling back to the previous checkpoint", error)
            else:
                self._rename_damaged_newer_than(path)
                rename_unflushed(path, path.with_name(str(state.progress.update)))
                return state
        if problem:
            raise DamagedCheckpointError(f"all checkpoints are damaged; the oldest: {problem}")
        return None

    def write_best(self, progress: Progress) -> None:
        """Write the best update to the file that names the best checkpoint; delete the file if there is none."""
        if progress.best_update is None:
            remove_file_unflushed(self.best_path)
            return
        best = {"update": progress.best_update, "score": progress.best_score}
        content = json_with_digest("best", self.best_path.name, best)
        if not self.best_path.exists() or _content_of(self.best_path) != content.encode():
            replace_file(self.best_path, content)

    def clean(self) -> None:
        """Create the folder and remove the incomplete checkpoints of interrupted saves."""
        create_folder_unflushed(self.folder)  # its name is flushed with that of the event log
        remove_abandoned_folders(self.folder)  # and the lock of one that was complete when its process was killed
        for path in self.folder.iterdir():
            if path.is_dir() and path.name.startswith(".") and not _CHECKPOINT.fullmatch(path.name):
                remove_leftover_folder(path)

    def _newest_first(self) -> list[Path]:
        matches = [(path, match) for path in self.folder.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))]
        matches.sort(key=lambda item: (int(item[1][1] or item[1][2]), item[1][1] is not None), reverse=True)
        return [path for path, _ in matches]

    def _rename_damaged_newer_than(self, good: Path) -> None:
        for path in self._newest_first():
            if path == good:
                return
            rename_unflushed(path, path.with_name(f".{path.name.strip('.')}.damaged"))

    def _prune(self) -> None:
        checkpoints = self._newest_first()
        current = [path for path in checkpoints if not path.name.startswith(".")]
        permanent = [path for path in current if not (path / TEMPORARY).exists()][: self.keep]
        kept = {*current[:1], *permanent}
        # also keep the best of each kept checkpoint: if the newest is damaged, training resumes from an older one
        names = {path.name for path in kept} | {_best_update_of(path) for path in kept}
        names |= {str(update) for update in self.protected_updates()}
        remove_folders([path for path in checkpoints if path.name not in names])


def _content_of(path: Path) -> bytes | None:
    try:
        return read_bytes(path)
    except OSError:  # it is replaced
        return None


def checkpoint_updates(folder: Path) -> list[int]:
    """Return the updates that have a checkpoint in a folder, in any order; the checkpoints are not verified."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return list({update_of(path) for path in paths if _CHECKPOINT.fullmatch(path.name)})


def checkpoint_path(folder: Path, update: int) -> Path:
    """Return the path of the checkpoint of an update, which has another name while a new one replaces it."""
    path = folder / str(update)
    return path if path.exists() else next(folder.glob(f".{update}.old*"), path)


def _best_update_of(path: Path) -> str | None:
    try:
        update = read_state_file(path, read_manifest(path)).progress.best_update
    except DamagedCheckpointError:
        return None
    return None if update is None else str(update)


def _unused_old_name(target: Path) -> Path:
    """Return an unused name under which a checkpoint that is being replaced can be loaded."""
    number = 1
    while (old := target.with_name(f".{target.name}.old{number}")).exists():
        number += 1
    return old


FORMAT_VERSION = 1


def analysis_path(run_dir: Path, name: str) -> Path:
    """Return the path of an analysis in a run folder."""
    return run_dir / "analyses" / f"{name}.json"


def scores_path(run_dir: Path, split: str) -> Path:
    """Return the path of the scores of a split in a run folder."""
    return run_dir / "scores" / f"{split}.json"


def hypotheses_path(run_dir: Path, split: str) -> Path:
    """Return the path of the translations of a split, one per line."""
    return run_dir / "scores" / f"{split}.translations.txt"


def write_analysis(run_dir: Path, name: str, kind: str, content: Mapping[str, Any]) -> Path:
    """Write ``analyses/NAME.json`` into a run folder atomically; ``kind`` names the type of its content."""
    path = analysis_path(run_dir, name)
    create_folder(path.parent)
    write_json(path, "analysis", {"format_version": FORMAT_VERSION, "kind": kind, **content})
    return path


def read_translations(folder: Path, split: str, count: int) -> list[str]:
    """Return the translations that evaluation wrote for a split.

    Raises:
        StructattnError: there are none.
        DataError: their file is damaged, has changed since it was scored, or holds another number of lines.
    """
    path = hypotheses_path(folder, split)
    if not path.exists():
        raise StructattnError(f"{path} is missing; `structattn evaluate {folder} --split {split}` writes it")
    try:
        lines = read_bytes(path).decode().split("\n")[:-1]  # a CR is an ordinary character
    except UnicodeDecodeError as error:
        raise DataError(path, f"is damaged, run `structattn evaluate` again: {error}") from None
    if _scored_digest(folder, split) not in (None, sha256_of_file(path)):
        raise DataError(path, "changed since it was scored; run `structattn evaluate` again")
    if len(lines) != count:
        raise DataError(path, f"holds {len(lines)} translations of {count} lines; run `structattn evaluate` again")
    return lines


def _scored_digest(folder: Path, split: str) -> str | None:
    """Return the digest of the translations that were scored; None if it is not known."""
    path = scores_path(folder, split)
    digest: str | None = read_json(path, "scores").get("translations_digest") if path.exists() else None
    return digest
