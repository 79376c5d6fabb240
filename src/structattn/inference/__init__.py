"""Inference with trained runs.

- ``load`` returns a ``TrainedRun``: ``settings``, ``metadata``, ``model``, ``prepared`` data, and ``explain(texts)``.
  ``open_run`` does the same, with the checkpoint that the settings of the run name. ``TrainedModel`` is the type of
  its model, ``translation_model`` that model if it translates.
- ``Translator`` returns a ``Translation`` of each line by one or several models, with the beam searches in ``SEARCHES``
  or ``SeededSampling``; ``PairScorer`` scores given translations.
- ``explain_texts`` returns the attention weights of all layers as a ``Record`` for each layer and head.
- ``checkpoints_of`` finds checkpoints by name, and ``mean_weights`` averages their weights.
"""

from structattn.inference.checkpoints import checkpoints_of, mean_weights
from structattn.inference.explanations import TrainedModel, explain_texts
from structattn.inference.load import load
from structattn.inference.pair_scorer import PairScore, PairScorer
from structattn.inference.records import Record
from structattn.inference.runs import TrainedRun, open_run, translation_model
from structattn.inference.translator import SEARCHES, SeededSampling, Translation, Translator

__all__ = [
    "SEARCHES",
    "PairScore",
    "PairScorer",
    "Record",
    "SeededSampling",
    "TrainedModel",
    "TrainedRun",
    "Translation",
    "Translator",
    "checkpoints_of",
    "explain_texts",
    "load",
    "mean_weights",
    "open_run",
    "translation_model",
]
