"""Settings of runs and sweeps: the single source of YAML files, the Python API and the JSON Schema; without torch.

- ``RunSettings``: all settings of a run; ``load_settings`` reads them from YAML, ``resolve_settings`` from a mapping.
- ``SweepSettings``: a grid of trials; ``load_sweep`` reads it from YAML.
- ``Budget``: an amount of training.
- ``Halving``: successive halving of the trials of a sweep.
- ``TrainingSettings``: batches, loss, optimizer, schedule, and when to stop.
- ``EvaluationSettings``: checkpoint and beam search.
- ``LanguageModelSettings``, ``MaskedLanguageModelSettings``, ``EncoderDecoderSettings``: transformers.
- ``TwoStreamSettings``, ``TwoStreamEncoderDecoderSettings``: two-stream transformers.
- ``LstmSettings``, ``ElmanSettings``: recurrent language models, optionally with a stack.
- ``ModelSettings``: the union of these models.
- ``MECHANISMS``: name -> ``Mechanism``, the entry of an attention mechanism or stack; ``Use``: a use of it that has
  settings and a builder of its own.
- ``POSITIONS``: name -> ``Positions``, the entry of positional encodings.
- ``Settings``: the base class of all settings.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.settings.base import Settings
    from structattn.settings.embeddings import POSITIONS, Positions
    from structattn.settings.evaluation import EvaluationSettings
    from structattn.settings.mechanisms import MECHANISMS, Mechanism, Use
    from structattn.settings.models import ModelSettings
    from structattn.settings.recurrent import ElmanSettings, LstmSettings
    from structattn.settings.run import RunSettings, load_settings, resolve_settings
    from structattn.settings.sweep import Halving, SweepSettings, load_sweep
    from structattn.settings.training import Budget, TrainingSettings
    from structattn.settings.transformer import (
        EncoderDecoderSettings,
        LanguageModelSettings,
        MaskedLanguageModelSettings,
        TwoStreamEncoderDecoderSettings,
        TwoStreamSettings,
    )

__all__ = [
    "MECHANISMS",
    "POSITIONS",
    "Budget",
    "ElmanSettings",
    "EncoderDecoderSettings",
    "EvaluationSettings",
    "Halving",
    "LanguageModelSettings",
    "LstmSettings",
    "MaskedLanguageModelSettings",
    "Mechanism",
    "ModelSettings",
    "Positions",
    "RunSettings",
    "Settings",
    "SweepSettings",
    "TrainingSettings",
    "TwoStreamEncoderDecoderSettings",
    "TwoStreamSettings",
    "Use",
    "load_settings",
    "load_sweep",
    "resolve_settings",
]

__getattr__, __dir__ = lazy_exports(__name__)
