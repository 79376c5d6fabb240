"""Export as safetensors: the weights under our names, the settings, and the files of the tokenizer."""

import json
from pathlib import Path

from structattn.loading.trained_run import TrainedRun
from structattn.runs.checkpoint import tensors_to_bytes
from structattn.runs.selection import weights_of
from structattn.support.files import write_unflushed
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
