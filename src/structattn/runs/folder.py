"""A run's folder: where everything lies, and whether a run may begin or go on in it."""

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
    """The files of a run.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def settings(self) -> Path:
        """The resolved settings; written last, so a folder that has them holds a run."""
        return self.path / "settings.yaml"

    @property
    def card(self) -> Path:
        """The run card."""
        return self.path / "run.json"

    @property
    def events(self) -> Path:
        """What happened, without a clock."""
        return self.path / "events.jsonl"

    @property
    def timing(self) -> Path:
        """When it happened."""
        return self.path / "timing.jsonl"

    @property
    def lock(self) -> Path:
        """Held while the run trains."""
        return self.path / "lock"

    @property
    def checkpoints(self) -> Path:
        """Holds one folder per checkpoint."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """Names the best checkpoint."""
        return self.path / "best.json"

    def holds_a_run(self) -> bool:
        """Whether a run has begun here."""
        return self.settings.exists()

    def end_event(self) -> dict[str, Any] | None:
        """The last line of the event log if the run has come to its end."""
        event = last_event(self.events)
        return event if event and event.get("event") == "end" else None

    def read_card(self) -> dict[str, Any]:
        """The run card.

        Raises:
            StructattnError: it is missing or not JSON.
        """
        try:
            card = json.loads(self.card.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise StructattnError(f"{self.card}: cannot be read: {error}") from None
        if not isinstance(card, dict):
            raise StructattnError(f"{self.card}: expected an object, found {type(card).__name__}")
        return card

    def write_card(self, card: dict[str, Any]) -> None:
        """Replace the run card."""
        write_atomically(self.card, json.dumps(card, indent=2) + "\n")


def settings_digest(settings: RunSettings) -> str:
    """The SHA-256 of the settings of training that are not defaults, so that a field that is new changes nothing.

    Where the data lie is no part of it (they have a digest of their own), nor how a run is evaluated, but for how BLEU
    parts words where the run is selected by BLEU.
    """
    tree = settings.model_dump(mode="json", exclude_defaults=True, exclude={"data", "evaluation"})
    tokenizer = settings.evaluation.bleu_tokenizer
    if settings.training.select_by == "bleu" and tokenizer != EvaluationSettings().bleu_tokenizer:
        tree["bleu_tokenizer"] = tokenizer
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def require_own_folder(folder: RunFolder) -> None:
    """Refuse a folder in which there is something else than what a start of a run leaves.

    Raises:
        StructattnError: the folder holds something else.
    """
    if not folder.path.exists():
        return
    ours = {folder.lock.name, folder.card.name}
    others = sorted(entry.name for entry in folder.path.iterdir() if entry.name not in ours)
    others = [name for name in others if not name.startswith((".run.json.", ".settings.yaml."))]
    if others:
        raise StructattnError(f"{folder.path}: expected a new or empty folder for the run, found {others[0]!r} in it")


def begin_run(folder: RunFolder, settings: RunSettings, card: dict[str, Any]) -> None:
    """Turn an empty folder into that of a run.

    Raises:
        StructattnError: the folder holds something else.
    """
    require_own_folder(folder)
    folder.write_card(card)
    write_atomically(folder.settings, settings.to_yaml())


def remember_place_of_data(folder: RunFolder, settings: RunSettings) -> None:
    """Keep the settings of a run that goes on, if its data have moved."""
    if load_settings(folder.settings).data != settings.data:
        write_atomically(folder.settings, settings.to_yaml())


def check_same_settings(folder: RunFolder, settings: RunSettings) -> None:
    """Refuse to continue a run under other settings; its data may have moved.

    Raises:
        SettingsError: the stored settings cannot be read.
        CheckpointError: they differ; each differing field is named with both values.
    """
    stored = _flat(load_settings(folder.settings).model_dump(mode="json"))
    given = _flat(settings.model_dump(mode="json"))
    changes = [
        f"{field} was {stored.get(field, 'absent')!r} and is now {given.get(field, 'absent')!r}"
        for field in sorted((stored.keys() | given.keys()) - {"data"})
        if stored.get(field, "absent") != given.get(field, "absent")
    ]
    if changes:
        raise CheckpointError(f"{folder.path}: a run resumes only under its own settings: {'; '.join(changes)}")


def check_same_data(folder: RunFolder, identity: Identity, path: Path) -> None:
    """Refuse to continue a run on other data.

    Raises:
        CheckpointError: the prepared folder's digest is another; both are named.
    """
    digest = folder.read_card().get("data", {}).get("digest")
    if digest != identity.data:
        raise CheckpointError(
            f"{path}: changed since the run {folder.path} began: its digest was {digest} and is {identity.data}"
        )


def _flat(tree: object, prefix: str = "") -> dict[str, object]:
    """The leaves of nested mappings and lists by dotted path."""
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
