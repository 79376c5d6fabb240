"""One checkpoint: a folder of safetensors and JSON whose manifest vouches for every byte. Reading it runs no code.

model.safetensors  optimizer.safetensors  state.json  MANIFEST.json
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import safetensors.torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from structattn.runs.state import Count, StateFile, TrainingState, state_from_json, state_to_json
from structattn.support.errors import CheckpointError

MODEL_NAME, OPTIMIZER_NAME, STATE_NAME = "model.safetensors", "optimizer.safetensors", "state.json"
MANIFEST_NAME = "MANIFEST.json"


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is not what was written; an older one may still be."""


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to.

    Args:
        settings: the SHA-256 of the run's resolved settings.
        data: the digest of its prepared folder.
    """

    settings: str
    data: str


@dataclass(frozen=True)
class Manifest:
    """What `MANIFEST.json` holds; ``files`` maps each other file to its SHA-256."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    format_version: Literal[1]
    update: Count
    settings_digest: str
    data_digest: str
    files: dict[str, str]


_MANIFEST = TypeAdapter(Manifest)


def write_checkpoint(folder: Path, state: TrainingState, identity: Identity) -> None:
    """Fill an empty folder, the manifest last. Cost: one copy of the tensors in memory, one pass of SHA-256."""
    contents = {
        MODEL_NAME: tensors_to_bytes(state.weights),
        OPTIMIZER_NAME: tensors_to_bytes(state.optimizer),
        STATE_NAME: state_to_json(state),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    manifest = Manifest(1, state.progress.update, identity.settings, identity.data, digests)
    (folder / MANIFEST_NAME).write_bytes(_MANIFEST.dump_json(manifest, indent=2) + b"\n")


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The tensors in safetensors' format; the same tensors give the same bytes."""
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        DamagedCheckpointError: it is missing or not a manifest.
    """
    path = folder / MANIFEST_NAME
    try:
        return _MANIFEST.validate_json(_bytes_of(path))
    except ValidationError as error:
        raise DamagedCheckpointError(f"{path}: {_first_problem(error)}") from None


def read_checkpoint(folder: Path, identity: Identity) -> TrainingState:
    """Read a checkpoint, every byte verified.

    Raises:
        DamagedCheckpointError: a file is missing or is not what was written; the message names it.
        CheckpointError: it was written by a run with other settings or data.
    """
    manifest = read_manifest(folder)
    check_identity(folder, manifest, identity)
    file = read_state_file(folder, manifest)
    if file.progress.update != manifest.update:
        raise DamagedCheckpointError(
            f"{folder / STATE_NAME}: is of update {file.progress.update}, its manifest of update {manifest.update}"
        )
    return TrainingState(
        weights=read_tensors(folder, MODEL_NAME, manifest),
        optimizer=read_tensors(folder, OPTIMIZER_NAME, manifest),
        generators=file.generators,
        progress=file.progress,
        event_log_length=file.event_log_length,
    )


def check_identity(folder: Path, manifest: Manifest, identity: Identity) -> None:
    """Compare the digests in a manifest with those of the run at hand.

    Raises:
        CheckpointError: the settings or the data were others.
    """
    for what, found, expected in (
        ("settings", manifest.settings_digest, identity.settings),
        ("data", manifest.data_digest, identity.data),
    ):
        if found != expected:
            raise CheckpointError(
                f"{folder / MANIFEST_NAME}: belongs to other {what}: their digest is {found}, this run's is {expected}"
            )


def read_state_file(folder: Path, manifest: Manifest) -> StateFile:
    """Read `state.json`.

    Raises:
        DamagedCheckpointError: it is not what was written.
    """
    content = _verified(folder, STATE_NAME, manifest)
    try:
        return state_from_json(content)
    except ValidationError as error:
        raise DamagedCheckpointError(f"{folder / STATE_NAME}: {_first_problem(error)}") from None


def read_tensors(folder: Path, name: str, manifest: Manifest) -> dict[str, Tensor]:
    """Read a file of tensors.

    Raises:
        DamagedCheckpointError: it is not what was written, or not safetensors.
    """
    content = _verified(folder, name, manifest)
    try:
        return safetensors.torch.load(content)
    except MemoryError:
        raise
    except Exception as error:  # whatever a parser makes of hostile bytes, they are refused by name
        raise DamagedCheckpointError(f"{folder / name}: not safetensors: {error}") from None


def _verified(folder: Path, name: str, manifest: Manifest) -> bytes:
    # the bytes that are verified are the bytes that are used: nothing can change between the two
    content = _bytes_of(folder / name)
    found, expected = hashlib.sha256(content).hexdigest(), manifest.files.get(name)
    if found != expected:
        raise DamagedCheckpointError(f"{folder / name}: its SHA-256 is {found}, its manifest says {expected}")
    return content


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{field}: {first['msg']}"
