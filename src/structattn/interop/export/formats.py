"""The formats of export by name, the simplest of them, and the model card."""

import json
import re
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from structattn.interop.export.ctranslate2 import export_ctranslate2
from structattn.interop.export.huggingface import export_huggingface
from structattn.interop.export.onnx import export_onnx
from structattn.loading.description import describe_model
from structattn.loading.trained_run import TrainedRun
from structattn.report.runs import Run, read_run
from structattn.runs.checkpoint import tensors_to_bytes
from structattn.runs.selection import weights_of
from structattn.support import __version__
from structattn.support.errors import UsageError
from structattn.support.files import (
    check_writable_folder,
    create_folder,
    is_empty_folder,
    write_folder_atomically,
    write_unflushed,
)
from structattn.tasks.model import resolved_model_settings
from structattn.text.folders.parallel import save_sides

CARD_NAME: Final = "README.md"
_LIBRARIES: Final = MappingProxyType({"huggingface": "transformers", "onnx": "onnx", "ctranslate2": "ctranslate2"})
_MARKUP, _ESCAPED = re.compile(r"[\\`*_\[\]<>&]"), r"\\\g<0>"  # of Markdown


def model_card(run: TrainedRun, license_name: str, usage: str, library: str | None = None) -> str:
    """Return the text of the card: usage, model, data with their digests, scores and settings.

    Args:
        run: the run.
        license_name: the licence of the weights, as the Hugging Face hub names it; ``unknown``, if not given.
        usage: Markdown that says how to load the model.
        library: the one that loads it, as the Hugging Face hub names it; None: none that the hub knows.

    Raises:
        DataError, CheckpointError: a file of the run folder is damaged.
    """
    files = read_run(run.run_dir)
    card, header = run.metadata, run.prepared.header
    sources = "".join(f"- {each.split}: SHA-256 `{each.sha256}`\n" for each in header.sources)
    named = {} if library is None else {"library_name": library}
    metadata = {"license": license_name, **named, "tags": ["structattn", run.settings.task]}
    settings = {name: value for name, value in files.settings.items() if name != "data"}  # a path of this machine
    return f"""---
{_yaml(metadata)}
---

# {_MARKUP.sub(_ESCAPED, files.name)}

{describe_model(run.settings.model)}; task {run.settings.task}, {card["parameters"]:,} parameters. Exported by
structattn {__version__} from the checkpoint of update {run.update}.

## Usage

{usage}

## Training data

{files.data_name} ({header.kind}), digest `{run.prepared.digest}`.

{sources}
## Scores

{_scores(files)}

## Settings

Digest `{card["settings_digest"]}`, seed {card["seed"]}, structattn {card["version"]}.

```yaml
{_yaml(settings)}
```
"""


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True).strip()


def _scores(run: Run) -> str:
    rows = [(split, name, value) for split, scores in run.scores.items() for name, value in _numbers(scores)]
    if not rows:
        return "None: `structattn evaluate` was not run."
    lines = [f"| {split} | {name} | {value:.6g} |" for split, name, value in rows]
    return "\n".join(["| split | score | value |", "|---|---|---|", *lines])


def _numbers(scores: Mapping[str, Any]) -> list[tuple[str, float]]:
    names = ("cross_entropy", "perplexity", "lower_bound", "accuracy")
    found = [(name, scores[name]) for name in names if isinstance(scores.get(name), int | float)]
    return found + [(name, metric["value"]) for name, metric in (scores.get("translation") or {}).items()]


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


def export_run(run: TrainedRun, form: str, folder: str | PathLike[str], license_name: str = "unknown") -> None:
    """Write a run into a new folder, atomically.

    ``form`` is one of ``FORMATS``; the folder must not exist, or be empty. ``license_name``: of the weights, for the
    model card, as the Hugging Face hub names it.

    Raises:
        UsageError: there is no such format, the folder is not empty, the run cannot be exported to it, or a library is
            not installed.
        OSError: a file cannot be written; it is named as in the new folder.
    """
    if form not in FORMATS:
        raise UsageError(f"format {form!r} is not one of {', '.join(FORMATS)}")
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and is_empty_folder(folder)):
        raise UsageError(f"{folder}: exists; expected a new or empty folder")
    check_writable_folder(folder)
    create_folder(folder.absolute().parent)
    with write_folder_atomically(folder) as temporary:
        usage = FORMATS[form](run, temporary)
        write_unflushed(temporary / CARD_NAME, model_card(run, license_name, usage, _LIBRARIES.get(form)))
