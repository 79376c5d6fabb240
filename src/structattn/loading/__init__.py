"""Trained runs as objects.

- ``load`` returns a ``TrainedRun``: ``settings``, ``metadata``, ``model``, ``prepared`` data, and methods that take and
  return text. ``open_run`` does the same for a ``Path`` and a device of torch.
- ``evaluate`` scores a run folder on a split and writes ``SplitScores``; ``evaluate_run`` does so for a run that is
  already open; ``is_scored``: whether a run folder has the scores of a split.
- ``explain_texts`` returns the attention weights of all layers as a ``Record`` for each layer and head.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.loading.evaluate import evaluate, evaluate_run, is_scored
    from structattn.loading.records import Record, explain_texts
    from structattn.loading.runs import load, open_run
    from structattn.loading.trained_run import TrainedRun
    from structattn.tasks.scores import SplitScores

__all__ = [
    "Record",
    "SplitScores",
    "TrainedRun",
    "evaluate",
    "evaluate_run",
    "explain_texts",
    "is_scored",
    "load",
    "open_run",
]

__getattr__, __dir__ = lazy_exports(__name__)
