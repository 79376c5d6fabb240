"""Paths of a run folder, and checks before a run starts or resumes in it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structattn.runs.checkpoint import Identity
from structattn.runs.logs import last_event
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.run import RunSettings, load_settings
from structattn.support.errors import CheckpointError, StructattnError
from structattn.support.files import write_atomically


@dataclass(frozen=True)
class RunFolder:
    """Paths of the files in a run folder.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def settings(self) -> Path:
        """The resolved settings. Written last when a run starts: they mark the folder as a run."""
        return self.path / "settings.yaml"

    @property
    def card(self) -> Path:
        """The run card."""
        return self.path / "run.json"

    @property
    def events(self) -> Path:
        """The event log; contains no times."""
        return self.path / "events.jsonl"

    @property
    def timing(self) -> Path:
        """The timing log."""
        return self.path / "timing.jsonl"

    @property
    def lock(self) -> Path:
        """The lock file, held during training."""
        return self.path / "lock"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """The file that names the best checkpoint."""
        return self.path / "best.json"

    def has_run(self) -> bool:
        """Return whether a run was started in this folder."""
        return self.settings.exists()

    def end_event(self) -> dict[str, Any] | None:
        """Return the end event if the run is finished, otherwise None."""
        event = last_event(self.events)
        return event if event and event.get("event") == "end" else None

    def read_card(self) -> dict[str, Any]:
        """Read the run card.

        Raises:
            StructattnError: it is missing or not a JSON object.
        """
        try:
            card = json.loads(self.card.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise StructattnError(f"{self.card}: cannot be read: {error}") from None
        if not isinstance(card, dict):
            raise StructattnError(f"{self.card}: expected a JSON object, found {type(card).__name__}")
        return card

    def write_card(self, card: dict[str, Any]) -> None:
        """Write or replace the run card."""
        write_atomically(self.card, json.dumps(card, indent=2) + "\n")


def settings_digest(settings: RunSettings) -> str:
    """Return the SHA-256 of the training settings that differ from their defaults.

    Defaults are left out so that a new settings field keeps existing digests valid. The data path is left out because
    the data have their own digest. Evaluation settings are left out, except the BLEU tokenizer if checkpoints are
    selected by BLEU.
    """
    tree = settings.model_dump(mode="json", exclude_defaults=True, exclude={"data", "evaluation"})
    tokenizer = settings.evaluation.bleu_tokenizer
    if settings.training.select_by == "bleu" and tokenizer != EvaluationSettings().bleu_tokenizer:
        tree["bleu_tokenizer"] = tokenizer
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def require_empty_folder(run_dir: RunFolder) -> None:
    """Check that a folder is missing, empty or contains only files of an aborted start of a run.

    Raises:
        StructattnError: the folder contains other files.
    """
    if not run_dir.path.exists():
        return
    ours = {run_dir.lock.name, run_dir.card.name}
    others = sorted(entry.name for entry in run_dir.path.iterdir() if entry.name not in ours)
    others = [name for name in others if not name.startswith((".run.json.", ".settings.yaml."))]
    if others:
        raise StructattnError(f"{run_dir.path}: expected a new or empty folder for the run, found {others[0]!r} in it")


def begin_run(run_dir: RunFolder, settings: RunSettings, card: dict[str, Any]) -> None:
    """Write the run card and the settings into an empty folder.

    Raises:
        StructattnError: the folder contains other files.
    """
    require_empty_folder(run_dir)
    run_dir.write_card(card)
    write_atomically(run_dir.settings, settings.to_yaml())


def record_data_path(run_dir: RunFolder, settings: RunSettings) -> None:
    """Update the stored settings of a resumed run if its data path has changed."""
    if load_settings(run_dir.settings).data != settings.data:
        write_atomically(run_dir.settings, settings.to_yaml())


def check_same_settings(run_dir: RunFolder, settings: RunSettings) -> None:
    """Check that a run is resumed with its own settings; the data path may differ.

    Raises:
        SettingsError: the stored settings cannot be read.
        CheckpointError: they differ; the message lists each field with both values.
    """
    stored = _flat(load_settings(run_dir.settings).model_dump(mode="json"))
    given = _flat(settings.model_dump(mode="json"))
    changes = [
        f"{field} was {stored.get(field, 'absent')!r} and is now {given.get(field, 'absent')!r}"
        for field in sorted((stored.keys() | given.keys()) - {"data"})
        if stored.get(field, "absent") != given.get(field, "absent")
    ]
    if changes:
        raise CheckpointError(f"{run_dir.path}: cannot resume with other settings: {'; '.join(changes)}")


def check_same_data(run_dir: RunFolder, identity: Identity, path: Path) -> None:
    """Check that a run is resumed on the same data.

    Raises:
        CheckpointError: the digest of the prepared folder differs; the message has both.
    """
    digest = run_dir.read_card().get("data", {}).get("digest")
    if digest != identity.data:
        raise CheckpointError(
            f"{path}: changed since the run {run_dir.path} started: digest was {digest} and is now {identity.data}"
        )


def _flat(tree: object, prefix: str = "") -> dict[str, object]:
    """Flatten nested mappings and lists to a mapping from dotted paths to leaves."""
    if isinstance(tree, dict):
        items = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list) and tree:
        items = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return {prefix: tree}
    leaves: dict[str, object] = {}
    for key, value in items:
        leaves |= _flat(value, f"{prefix}.{key}" if prefix else key)
    return leaves
