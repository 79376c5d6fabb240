"""The formats of export by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from structattn.interop.export.ctranslate2 import export_ctranslate2
from structattn.interop.export.huggingface import export_huggingface
from structattn.interop.export.onnx import export_onnx
from structattn.interop.export.safetensors import export_safetensors
from structattn.loading.trained_run import TrainedRun
from structattn.support.errors import UsageError
from structattn.support.files import create_folder, is_empty_folder, write_folder_atomically

FORMATS: Final[Mapping[str, Callable[[TrainedRun, Path, str], None]]] = MappingProxyType(
    {
        "safetensors": export_safetensors,
        "huggingface": export_huggingface,
        "onnx": export_onnx,
        "ctranslate2": export_ctranslate2,
    }
)
"""Name -> the function that writes a run into an empty folder, given the name of its licence."""


def export_run(run: TrainedRun, form: str, folder: Path, license_name: str = "unknown") -> None:
    """Write a run into a new folder, atomically.

    Args:
        run: the run.
        form: one of ``FORMATS``.
        folder: where to; it must not exist, or be empty.
        license_name: the licence of the weights for the model card, as the Hugging Face hub names it.

    Raises:
        UsageError: there is no such format, the folder is not empty, the run cannot be exported to it, or a library is
            not installed.
    """
    if form not in FORMATS:
        raise UsageError(f"format {form!r} is not one of {', '.join(FORMATS)}")
    if folder.exists() and not (folder.is_dir() and is_empty_folder(folder)):
        raise UsageError(f"{folder}: exists; expected a new or empty folder")
    create_folder(folder.absolute().parent)
    with write_folder_atomically(folder) as temporary:
        FORMATS[form](run, temporary, license_name)
