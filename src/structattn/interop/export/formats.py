"""The formats of export by name, and the simplest: the weights and settings of a run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from structattn.interop.export.card import CARD_NAME, model_card
from structattn.interop.export.ctranslate2 import export_ctranslate2
from structattn.interop.export.huggingface import export_huggingface
from structattn.interop.export.onnx import export_onnx
from structattn.loading.trained_run import TrainedRun
from structattn.runs.checkpoint import tensors_to_bytes
from structattn.runs.selection import weights_of
from structattn.support.errors import UsageError
from structattn.support.files import create_folder, is_empty_folder, write_folder_atomically, write_unflushed
from structattn.tasks.model import resolved_model_settings
from structattn.text.folders.parallel import save_sides

WEIGHTS_NAME, CONFIG_NAME = "model.safetensors", "config.json"
_USAGE = """```python
import safetensors.torch

weights = safetensors.torch.load_file("model.safetensors")
```

`config.json` has the settings of the model and the description of its tokenizer, whose files are here, too."""


def export_safetensors(run: TrainedRun, folder: Path) -> str:
    """Write ``model.safetensors``, ``config.json`` and the files of the tokenizer of any kind of run."""
    prepared = run.prepared
    config = {
        "format_version": 1,
        "task": run.settings.task,
        "model": resolved_model_settings(run.settings.model, prepared).model_dump(mode="json"),
        "vocabulary_size": prepared.vocabulary.size,
        "tokenizer": prepared.header.tokenizer,
    }
    if prepared.parallel_sides is None:
        prepared.tokenizer.save(folder)
    else:
        config["source_vocabulary_size"] = prepared.sides.source.vocabulary.size
        save_sides(prepared.sides, folder, prepared.sides.joint)
    write_unflushed(folder / WEIGHTS_NAME, tensors_to_bytes(weights_of(run.model)))
    write_unflushed(folder / CONFIG_NAME, json.dumps(config, indent=2) + "\n")
    return _USAGE


FORMATS: Final[Mapping[str, Callable[[TrainedRun, Path], str]]] = MappingProxyType(
    {
        "safetensors": export_safetensors,
        "huggingface": export_huggingface,
        "onnx": export_onnx,
        "ctranslate2": export_ctranslate2,
    }
)
"""Name -> the function that writes a run into an empty folder, and returns Markdown that says how to load it.

It raises a ``UsageError`` if a part of the run cannot be expressed, or if a library is not installed.
"""


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
        OSError: a file cannot be written; it is named as in the new folder.
    """
    if form not in FORMATS:
        raise UsageError(f"format {form!r} is not one of {', '.join(FORMATS)}")
    if folder.exists() and not (folder.is_dir() and is_empty_folder(folder)):
        raise UsageError(f"{folder}: exists; expected a new or empty folder")
    create_folder(folder.absolute().parent)
    with write_folder_atomically(folder) as temporary:
        usage = FORMATS[form](run, temporary)
        write_unflushed(temporary / CARD_NAME, model_card(run, license_name, usage))
