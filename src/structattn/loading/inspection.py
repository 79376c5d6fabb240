"""What a run folder says about its run: settings, data, sizes, scores, time and end."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from structattn.runs.checkpoint import MODEL_NAME, read_manifest, read_tensors
from structattn.runs.folder import existing_run, flatten
from structattn.runs.selection import best_update
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.settings.run import RunSettings
from structattn.support.errors import DataError
from structattn.support.json_files import read_json
from structattn.text.folders.header import read_header

_SCORES: Final = ("cross_entropy", "lower_bound", "cross_entropy_difference", "perplexity", "accuracy",
                  "accuracy_greedy")  # fmt: skip
_KINDS: Final = ("kind", "attention")


@dataclass(frozen=True)
class Inspection:
    """A run as its folder describes it.

    Args:
        version: of structattn, when the run was started.
        model: the kind of the model.
        settings: the settings that differ from their defaults, by dotted path.
        ended: why the run ended; None: it has not ended.
        update: the number of completed updates, or the newest checkpoint of a run that has not ended.
        epoch: the number of completed epochs; None while the run has not ended.
        best_update: the update of the best validation; None: unknown.
        seconds: the time of training; None while the run has not ended.
        checkpoints: the updates of the checkpoints in the folder.
        parts: number of parameters of each part of the model; None without a checkpoint.
        data: path, kind and digest of the prepared folder, and, if it is there and has not changed, the numbers of
            sequences and tokens of each split and the SHA-256 of each source.
        scores: split -> its main scores, as ``structattn evaluate`` stored them.
        plugins: name, version and SHA-256 of each plugin.
    """

    run: Path
    version: str
    task: str
    model: str
    settings: dict[str, Any]
    ended: str | None
    update: int
    epoch: int | None
    best_update: int | None
    seconds: float | None
    checkpoints: list[int]
    parameters: int
    parts: dict[str, int] | None
    data: dict[str, Any]
    scores: dict[str, dict[str, float]]
    device: str
    plugins: list[dict[str, Any]]


def inspect_run(run_dir: Path) -> Inspection:
    """Read what a run folder says about its run; it may still be in progress, and its data may have been moved.

    Raises:
        StructattnError: the folder is not a run folder.
        CheckpointError, DataError, SettingsError: a file in it is damaged.
    """
    folder = existing_run(run_dir)
    settings, card = folder.read_settings(), folder.read_card()
    result, updates = card["result"] or {}, sorted(checkpoint_updates(folder.checkpoints))
    return Inspection(
        run=run_dir,
        version=card["version"],
        task=settings.task,
        model=settings.model.kind,
        settings=changed_settings(settings),
        ended=result.get("reason"),
        update=result.get("update", updates[-1] if updates else 0),
        epoch=result.get("epoch"),
        best_update=best_update(folder.best) if folder.best.exists() else None,
        seconds=result.get("seconds"),
        checkpoints=updates,
        parameters=card["parameters"],
        parts=_parts(checkpoint_path(folder.checkpoints, updates[-1])) if updates else None,
        data=_data(settings.data, card["data"]),
        scores={path.stem: _scores(path) for path in sorted((run_dir / "scores").glob("*.json"))},
        device=str(card["hardware"].get("device", "unknown")),
        plugins=card.get("plugins", []),
    )


def changed_settings(settings: RunSettings) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by dotted path.

    The fields that tell the kinds of a union apart are shown where the default is of another kind.
    """
    return flatten(_changed(settings, settings))


def _changed(value: Any, default: Any) -> Any:
    """Return what of a value differs from its own defaults, and its kind if ``default`` is of another."""
    if isinstance(value, list | tuple):
        return [_changed(each, None) for each in value]
    if not isinstance(value, BaseModel):
        return TypeAdapter(Any).dump_python(value, mode="json")
    changes = {}
    for name, field in type(value).model_fields.items():
        own, usual = getattr(value, name), field.get_default(call_default_factory=True, validated_data={})
        is_kind = name in _KINDS and type(default) is not type(value)
        if own != usual or is_kind:
            changes[name] = _changed(own, usual)
    return changes


def _parts(checkpoint: Path) -> dict[str, int]:
    """Return the number of weights of each part of the model: what precedes the first point of their names."""
    counts = Counter[str]()
    for name, tensor in read_tensors(checkpoint, MODEL_NAME, read_manifest(checkpoint)).items():
        counts[name.split(".")[0]] += tensor.numel()
    return dict(sorted(counts.items()))  # safetensors has no order


def _data(path: Path, stated: dict[str, Any]) -> dict[str, Any]:
    summary = {"path": str(path), "kind": stated["kind"], "digest": stated["digest"]}
    try:
        header, digest = read_header(path)
    except DataError:
        return {**summary, "state": "missing or damaged"}
    if digest != stated["digest"]:
        return {**summary, "state": f"changed: its digest is now {digest}"}
    splits = {name: counts.model_dump() for name, counts in header.splits.items()}
    return {**summary, "splits": splits, "sources": {source.path: source.sha256 for source in header.sources}}


def _scores(path: Path) -> dict[str, float]:
    content = read_json(path, "scores")
    main = {name: content[name] for name in _SCORES if content.get(name) is not None}
    return main | {name: each["value"] for name, each in (content.get("translation") or {}).items()}
