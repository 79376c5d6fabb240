"""The model card, README.md, of an exported model."""

import re
from collections.abc import Mapping
from typing import Any, Final

from structattn.loading.description import describe_model
from structattn.loading.trained_run import TrainedRun
from structattn.report.runs import Run, read_run
from structattn.support import __version__

CARD_NAME: Final = "README.md"


def model_card(run: TrainedRun, license_name: str, usage: str) -> str:
    """Return the text of the card: usage, model, data with their digests, scores and settings.

    Args:
        run: the run.
        license_name: the licence of the weights, as the Hugging Face hub names it; ``unknown``, if not given.
        usage: Markdown that says how to load the model.

    Raises:
        DataError, CheckpointError: a file of the run folder is damaged.
    """
    files = read_run(run.run_dir)
    card, header = run.metadata, run.prepared.header
    sources = "".join(f"- {each.split}: SHA-256 `{each.sha256}`\n" for each in header.sources)
    return f"""---
license: {license_name}
library_name: transformers
tags:
- structattn
- {run.settings.task}
---

# {files.name}

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
{_without_data_path(files.settings_text)}
```
"""


def _without_data_path(settings: str) -> str:
    return re.sub(r"^data: .*\n", "", settings, flags=re.MULTILINE).strip()


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
