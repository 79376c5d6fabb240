"""Paths of a run folder, and checks before a run starts or resumes in it."""

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from structattn.runs.checkpoint import Identity, LogPrefix
from structattn.runs.logs import last_event
from structattn.runs.metadata import check_card
from structattn.settings.base import leaves
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.run import LIMITS, RunSettings, limits_of, resolve_settings
from structattn.settings.yaml import parse_mapping
from structattn.support.errors import CheckpointError, DataError, SettingsError, StructattnError, UsageError
from structattn.support.files import (
    flush_to_disk,
    remove_file_unflushed,
    remove_folders,
    replace_file,
    require_own_folder,
)
from structattn.support.json_files import read_json, write_json
from structattn.support.plugins import require_loaded
from structattn.support.reading import read_bytes

SWEEP_SETTINGS = "sweep.yaml"
"""The file of settings in the folder of a sweep, which is not that of a run."""
_SETTINGS_DIGEST = b"# sha256: "


class RunFolder:
    """The files in a run folder.

    Attributes:
        settings: the resolved settings. Written last when a run starts: they mark the folder as a run.
        card: the run card.
        events: the event log; contains no times.
        timing: the timing log.
        lock: the lock file, held during training.
        checkpoints: the folder of the checkpoints.
        best: the file that names the best checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "settings.yaml"
        self.card = path / "run.json"
        self.events = path / "events.jsonl"
        self.timing = path / "timing.jsonl"
        self.lock = path / "lock"
        self.checkpoints = path / "checkpoints"
        self.best = path / "best.json"

    def has_run(self) -> bool:
        """Return whether a run was started in this folder."""
        return self.settings.exists()

    def end_event(self) -> dict[str, Any] | None:
        """Return the end event if the run is finished, otherwise None.

        Raises:
            CheckpointError: it differs from the result in the run card.
            DataError: the run card cannot be read.
        """
        event = last_event(self.events)
        if not event or event.pop("event", None) != "end":
            return None
        result = self.read_card()["result"] or {}
        if event != {name: value for name, value in result.items() if name not in ("seconds", "event_log")}:
            raise CheckpointError(f"{self.events}: its end event differs from the result in {self.card}")
        return event

    def finished_log(self) -> LogPrefix | None:
        """Return length and digest of the event log before its end event; None while the run is not finished.

        Raises:
            DataError: the run card cannot be read.
        """
        result = self.read_card()["result"]
        return None if result is None else LogPrefix(**result["event_log"])

    def read_card(self) -> dict[str, Any]:
        """Read the run card.

        Raises:
            DataError: it is missing or damaged.
        """
        return check_card(read_json(self.card, "run"), self.card)

    def write_card(self, card: dict[str, Any]) -> None:
        """Write or replace the run card."""
        write_json(self.card, "run", card)

    def read_settings_text(self) -> bytes:
        """Read the settings as YAML and verify their digest, the last line of the file.

        Raises:
            SettingsError: the file cannot be read or has changed.
        """
        try:
            content = read_bytes(self.settings)
        except OSError as error:
            raise SettingsError(f"{self.settings}: cannot be read: {error.strerror or error}") from None
        text, _, stated = content.rpartition(_SETTINGS_DIGEST)
        digest = hashlib.sha256(text).hexdigest()
        if stated.decode(errors="replace") != f"{digest}\n":
            reason = "its SHA-256 does not agree with its last line; change the settings of a run in a copy"
            raise SettingsError(f"{self.settings}: changed since it was written: {reason}")
        return text

    def read_settings(self) -> RunSettings:
        """Read the settings and verify their digest.

        Raises:
            SettingsError: the file cannot be read, has changed or is invalid, or needs a plugin that is not loaded.
        """
        source = str(self.settings)
        tree = parse_mapping(self.read_settings_text(), source)
        try:
            return resolve_settings(tree, source=source)
        except SettingsError:
            with suppress(DataError):
                self.changed_plugins()  # a missing one explains why a name is unknown
            raise

    def changed_plugins(self) -> list[str]:
        """Describe each plugin of the run that has changed since it was started, with both digests.

        Raises:
            SettingsError: one is not loaded. What a run folder names is never executed.
            DataError: the run card is damaged.
        """
        changes = []
        for recorded in self.read_card().get("plugins", []) if self.card.exists() else []:
            try:
                now = require_loaded(recorded["name"], recorded).sha256
            except UsageError as error:
                raise SettingsError(f"{self.path}: {error}") from None
            if now != recorded["sha256"]:
                changes.append(f"{recorded['name']}: SHA-256 was {recorded['sha256']} and is now {now}")
        return changes

    def write_settings(self, settings: RunSettings) -> None:
        """Write or replace the settings, followed by their digest in a comment."""
        text = settings.to_yaml().encode()
        replace_file(self.settings, text + _SETTINGS_DIGEST + f"{hashlib.sha256(text).hexdigest()}\n".encode())


def settings_digest(settings: RunSettings) -> str:
    """Return the SHA-256 of the training settings that differ from their defaults.

    Defaults are left out so that a new settings field keeps existing digests valid. The data path is left out because
    the data have their own digest, the processes because a run may be resumed with others. Evaluation settings are left
    out, except the BLEU tokenizer if checkpoints are selected by BLEU.
    """
    same = _in_one_process(settings)
    tree = same.model_dump(mode="json", exclude_defaults=True, exclude={"data", "evaluation"})
    tokenizer = settings.evaluation.bleu_tokenizer
    if settings.training.select_by == "bleu" and tokenizer != EvaluationSettings().bleu_tokenizer:
        tree["bleu_tokenizer"] = tokenizer
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _in_one_process(settings: RunSettings) -> RunSettings:
    """Return the settings for training in one process, which computes the same as several."""
    training = settings.training.model_copy(update={"devices": 1, "nodes": 1, "strategy": "ddp"})
    return settings.model_copy(update={"training": training})


def require_empty_folder(run_dir: RunFolder) -> None:
    """Check that a folder is missing, empty or contains only files of an aborted start of a run.

    Raises:
        StructattnError: the folder contains other files, or is a file.
    """
    own, written = (run_dir.lock.name, run_dir.card.name), (run_dir.card.name, run_dir.settings.name)
    require_own_folder(run_dir.path, own, written, "a new or empty folder for the run")


def existing_run(run_dir: Path) -> RunFolder:
    """Return the paths of a folder in which a run was started.

    Raises:
        StructattnError: it is not a run folder.
    """
    folder = RunFolder(run_dir)
    if folder.has_run():
        return folder
    reason = f"{folder.settings.name} is missing" if run_dir.exists() else "it does not exist"
    if run_dir.is_file():
        reason = "it is a file"
    elif (run_dir / SWEEP_SETTINGS).exists():
        reason = f"it is that of a sweep, whose runs are in {run_dir / 'runs'}"
    raise StructattnError(f"{run_dir} is not a run folder: {reason}")


def begin_run(run_dir: RunFolder, settings: RunSettings, card: dict[str, Any]) -> None:
    """Write the run card and the settings into an empty folder.

    Raises:
        StructattnError: the folder contains other files.
    """
    require_empty_folder(run_dir)
    run_dir.write_card(card)
    run_dir.write_settings(settings)


def withdraw_run(run_dir: RunFolder) -> None:
    """Remove the files of a run that failed before its first update, so that another can begin in the folder.

    The settings go last: a process that is killed before leaves a run that can be resumed. Nothing is removed where
    there is a checkpoint, or a file of others.
    """
    ours = {run_dir.settings, run_dir.card, run_dir.events, run_dir.timing, run_dir.lock, run_dir.checkpoints}
    has_folder = run_dir.checkpoints.exists()
    if not ours.issuperset(run_dir.path.iterdir()) or (has_folder and any(run_dir.checkpoints.iterdir())):
        return
    if has_folder:
        remove_folders([run_dir.checkpoints])
    for log in (run_dir.events, run_dir.timing):
        remove_file_unflushed(log)
    flush_to_disk(run_dir.path)
    for file in (run_dir.settings, run_dir.card):
        remove_file_unflushed(file)


def record_data_path(run_dir: RunFolder, settings: RunSettings) -> None:
    """Update the data path in the stored settings of a resumed run if it has changed."""
    stored = run_dir.read_settings()
    if stored.data != settings.data:
        run_dir.write_settings(stored.model_copy(update={"data": settings.data}))


def check_same_settings(run_dir: RunFolder, settings: RunSettings, limits: Collection[str] = ()) -> None:
    """Check that a run is resumed with its own settings; the data path and the processes may differ.

    ``limits`` are the names of limits that may differ as well.

    Raises:
        SettingsError: the stored settings cannot be read.
        CheckpointError: they differ; the message lists each field with both values.
    """
    stored = run_dir.read_settings()
    if not (changes := changed_fields(stored, settings, limits)):
        return
    advice = (
        f"only overrides of limits (training.{', training.'.join(LIMITS)}) change a run; `train --from {run_dir.path}` "
        "starts a new one with other settings from its weights"
    )
    if not changed_fields(stored, settings, LIMITS):
        new, old = limits_of(settings), limits_of(stored)
        overrides = " ".join(f"training.{name}={json.dumps(new[name])}" for name in new if new[name] != old[name])
        advice = f"limits are overrides: `structattn train --resume --output {quote(str(run_dir.path))} {overrides}`"
    raise CheckpointError(f"{run_dir.path}: cannot resume with other settings: {'; '.join(changes)}; {advice}")


def changed_fields(stored: RunSettings, given: RunSettings, limits: Collection[str] = ()) -> list[str]:
    """Describe each field that differs, with both values; the data path, the processes and ``limits`` may differ."""
    trees = [_in_one_process(settings).model_dump(mode="json") for settings in (stored, given)]
    return differences(*trees, may_differ={"data", *(f"training.{name}" for name in limits)})


def differences(stored: object, given: object, may_differ: Collection[str] = ()) -> list[str]:
    """Describe each leaf that differs between two trees, by its dotted path and with both values."""
    old, new = flatten(stored), flatten(given)
    return [
        f"{field} was {old.get(field, 'absent')!r} and is now {new.get(field, 'absent')!r}"
        for field in sorted((old.keys() | new.keys()) - set(may_differ))
        if old.get(field, "absent") != new.get(field, "absent")
    ]


def check_same_data(run_dir: RunFolder, identity: Identity, path: Path) -> None:
    """Check that a run is resumed on the same data.

    Raises:
        CheckpointError: the digest of the prepared folder differs; the message has both.
    """
    digest = run_dir.read_card()["data"]["digest"]
    if digest != identity.data:
        raise CheckpointError(
            f"{path}: changed since the run {run_dir.path} started: digest was {digest} and is now {identity.data}"
        )


def flatten(tree: object) -> dict[str, object]:
    """Flatten nested mappings and lists to a mapping from dotted paths to leaves."""
    return dict(leaves(tree))
