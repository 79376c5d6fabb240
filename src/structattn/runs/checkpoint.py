"""A checkpoint: weights and everything that influences the next update of a run."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import safetensors.torch
import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from structattn.support.environment import is_out_of_memory
from structattn.support.errors import CheckpointError
from structattn.support.files import write_unflushed
from structattn.support.reading import MAX_COUNT, open_regular, read_bytes
from structattn.support.validation import first_problem

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]

EMPTY_SHA256 = hashlib.sha256().hexdigest()
"""The SHA-256 of no bytes."""

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class ScheduleState:
    """State of the learning-rate schedule.

    Args:
        learning_rate: learning rate of the next update, before warm-up.
        best: best validation perplexity so far.
        bad: number of validations since then without sufficient improvement.
    """

    __pydantic_config__ = _STRICT

    learning_rate: float
    best: float | None = None
    bad: Count = 0


@dataclass(frozen=True)
class Progress:
    """Progress of a run, counted in completed updates.

    Args:
        epoch: number of completed epochs; determines the batch order together with the seed.
        position: number of batches of the current epoch that completed updates have consumed.
        last_validation: update of the last validation.
        best_score: lowest validation cross-entropy in nats per symbol, or lowest negative BLEU.
        best_update: update at which it was reached.
        bad_validations: number of validations since then.
        examples_since_validation: number of examples since the last validation, or, where
            ``validate_every`` counts examples, since the last multiple.
    """

    __pydantic_config__ = _STRICT

    schedule: ScheduleState
    update: Count = 0
    epoch: Count = 0
    position: Count = 0
    last_validation: Count = 0
    best_score: float | None = None
    best_update: Count | None = None
    bad_validations: Count = 0
    examples_since_validation: Count = 0


@dataclass(frozen=True)
class LogPrefix:
    """The part of the event log that was written before a checkpoint: its number of bytes and their SHA-256."""

    __pydantic_config__ = _STRICT

    length: Count = 0
    sha256: str = EMPTY_SHA256


@dataclass(frozen=True)
class TrainingState:
    """State of a run between two updates. Gradients are not part of it: they do not outlive an update.

    Args:
        optimizer: optimizer tensors by ``parameter/quantity``.
        generators: base64-encoded states of torch's random generators by device.
    """

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    generators: Mapping[str, str]
    progress: Progress
    event_log: LogPrefix


@dataclass(frozen=True)
class StateFile:
    """Contents of `state.json`: the training state without tensors."""

    __pydantic_config__ = _STRICT

    format_version: Literal[1]
    progress: Progress
    generators: dict[str, str]
    event_log: LogPrefix


_STATE_FILE = TypeAdapter(StateFile)


MODEL_NAME, OPTIMIZER_NAME, STATE_NAME = "model.safetensors", "optimizer.safetensors", "state.json"
MANIFEST_NAME = "MANIFEST.json"
MAX_MANIFEST_BYTES = 1 << 20


class DamagedCheckpointError(CheckpointError):
    """A checkpoint file is missing or corrupt; an older checkpoint may be intact."""


@dataclass(frozen=True)
class Identity:
    """Digests of the settings and data that a checkpoint belongs to."""

    settings: str
    data: str


@dataclass(frozen=True)
class StoredFile:
    """Number of bytes and SHA-256 of a file."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Contents of `MANIFEST.json`; ``files`` maps the name of each other file to its size and SHA-256."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    format_version: Literal[1]
    update: Count
    settings_digest: str
    data_digest: str
    files: dict[str, StoredFile]


_MANIFEST = TypeAdapter(Manifest)


def write_checkpoint(folder: Path, state: TrainingState, identity: Identity) -> None:
    """Write a checkpoint into an empty folder, the manifest last. Copies the tensors once in memory and hashes them."""
    file = StateFile(1, state.progress, dict(state.generators), state.event_log)
    contents = {
        MODEL_NAME: tensors_to_bytes(state.weights),
        OPTIMIZER_NAME: tensors_to_bytes(state.optimizer),
        STATE_NAME: _STATE_FILE.dump_json(file, indent=2) + b"\n",
    }
    for name, content in contents.items():
        write_unflushed(folder / name, content)
    files = {name: StoredFile(len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()}
    manifest = Manifest(1, state.progress.update, identity.settings, identity.data, files)
    write_unflushed(folder / MANIFEST_NAME, _MANIFEST.dump_json(manifest, indent=2) + b"\n")


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize tensors as safetensors; equal tensors give equal bytes, in any order of the mapping.

    Raises:
        RuntimeError: out of memory.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # safetensors ends the process if it gets no memory for its three copies
    torch.empty(3 * sum(tensor.nbytes for tensor in on_cpu.values()), dtype=torch.uint8)
    return safetensors.torch.save(on_cpu)


def update_of(path: Path) -> int:
    """Return the update of a checkpoint from the name of its folder, UPDATE or .UPDATE.oldN."""
    return int(path.name.strip(".").partition(".")[0])


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        DamagedCheckpointError: it is missing or invalid, or that of another update.
    """
    path = folder / MANIFEST_NAME
    try:
        manifest: Manifest = _MANIFEST.validate_json(_bytes_of(path, MAX_MANIFEST_BYTES))
    except ValidationError as error:
        raise DamagedCheckpointError(f"{path}: {first_problem(error)}") from None
    if update_of(folder) != manifest.update:
        raise DamagedCheckpointError(f"{path}: is for update {manifest.update}, not for that of its folder")
    return manifest


def read_checkpoint(folder: Path, identity: Identity) -> TrainingState:
    """Read a checkpoint and verify every byte against its manifest.

    Raises:
        DamagedCheckpointError: a file is missing or corrupt; the message names it.
        CheckpointError: the checkpoint was written with other settings or data.
    """
    manifest = read_manifest(folder)
    check_identity(folder, manifest, identity)
    file = read_state_file(folder, manifest)
    if file.progress.update != manifest.update:
        raise DamagedCheckpointError(
            f"{folder / STATE_NAME}: is for update {file.progress.update}, but its manifest is for {manifest.update}"
        )
    return TrainingState(
        weights=read_tensors(folder, MODEL_NAME, manifest),
        optimizer=read_tensors(folder, OPTIMIZER_NAME, manifest),
        generators=file.generators,
        progress=file.progress,
        event_log=file.event_log,
    )


def check_identity(folder: Path, manifest: Manifest, identity: Identity) -> None:
    """Check that a manifest has the digests of this run.

    Raises:
        CheckpointError: the checkpoint was written with other settings or data.
    """
    for what, actual, expected in (
        ("settings", manifest.settings_digest, identity.settings),
        ("data", manifest.data_digest, identity.data),
    ):
        if actual != expected:
            raise CheckpointError(
                f"{folder / MANIFEST_NAME}: written with other {what}: digest {actual}; this run has {expected}"
            )


def read_state_file(folder: Path, manifest: Manifest) -> StateFile:
    """Read and verify `state.json`.

    Raises:
        DamagedCheckpointError: it is missing, corrupt or invalid.
    """
    content = _verified(folder, STATE_NAME, manifest)
    try:
        return _STATE_FILE.validate_json(content)
    except ValidationError as error:
        raise DamagedCheckpointError(f"{folder / STATE_NAME}: {first_problem(error)}") from None


def read_tensors(folder: Path, name: str, manifest: Manifest) -> dict[str, Tensor]:
    """Read and verify a safetensors file.

    Raises:
        DamagedCheckpointError: it is missing, corrupt or not valid safetensors.
    """
    content = _verified(folder, name, manifest)
    try:
        return safetensors.torch.load(content)
    except Exception as error:  # the parser may raise anything on malicious input
        if is_out_of_memory(error):
            raise
        raise DamagedCheckpointError(f"{folder / name}: invalid safetensors file: {error}") from None


def weights_without_values(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint on the meta device, from the header of their file, which is not verified.

    Raises:
        DamagedCheckpointError: the file is missing or not valid safetensors.
    """
    path = folder / MODEL_NAME
    try:
        with open_regular(path), safetensors.safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            return {
                name: torch.empty(each.get_shape(), dtype=_DTYPES[each.get_dtype()], device="meta")
                for name, each in slices.items()
            }
    except Exception as error:  # the parser may raise anything on malicious input
        raise DamagedCheckpointError(f"{path}: invalid safetensors file: {error}") from None


_DTYPES: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPES |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8}
_DTYPES |= {"U8": torch.uint8, "BOOL": torch.bool}


def _verified(folder: Path, name: str, manifest: Manifest) -> bytes:
    # verify the bytes in memory that are parsed afterwards: the file could change between two reads
    stored = manifest.files.get(name)
    if stored is None:
        raise DamagedCheckpointError(f"{folder / MANIFEST_NAME}: does not list {name}")
    content = _bytes_of(folder / name, stored.bytes)
    digest = hashlib.sha256(content).hexdigest()
    if digest != stored.sha256:
        raise DamagedCheckpointError(f"{folder / name}: SHA-256 is {digest}, but its manifest has {stored.sha256}")
    return content


def _bytes_of(path: Path, limit: int) -> bytes:
    try:
        return read_bytes(path, limit)
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
