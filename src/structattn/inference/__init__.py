"""Inference with trained runs.

- ``load`` returns a ``TrainedRun``: ``settings``, ``metadata``, ``model``, ``prepared`` data, and methods that take and
  return text: ``generate`` returns a ``Generation`` of each text, ``score`` a ``Score``, ``predict`` a ``Prediction``.
  ``open_run`` does the same, with the checkpoint that the settings of the run name. ``TrainedModel`` is the type of
  its model, ``translation_model`` that model if it translates.
- ``Translator`` returns a ``Translation`` of each line by one or several models, with the beam searches in ``SEARCHES``
  or ``SeededSampling``; ``PairScorer`` scores given translations, ``Parser`` returns trees. ``make_translator``,
  ``make_pair_scorer`` and ``make_parser`` make them from runs.
- ``explain_texts`` returns the attention weights of all layers as a ``Record`` for each layer and head.
- ``checkpoints_of`` finds checkpoints by name, and ``mean_weights`` averages their weights.
"""

from structattn.inference.explanations import TrainedModel, explain_texts
from structattn.inference.load import load
from structattn.inference.loaded import translation_model
from structattn.inference.predictor import Prediction
from structattn.inference.records import Record
from structattn.inference.runs import open_run
from structattn.inference.sampling import SeededSampling
from structattn.inference.scores import Score, TokenScore
from structattn.inference.trained_run import TrainedRun
from structattn.runs.selection import checkpoints_of, mean_weights
from structattn.tasks.language_modeling.generator import Generation
from structattn.tasks.parsing.predict import Parser, make_parser
from structattn.tasks.translation.pair_scorer import PairScorer
from structattn.tasks.translation.predict import SEARCHES, Translation, Translator
from structattn.tasks.translation.translators import make_pair_scorer, make_translator

__all__ = [
    "SEARCHES",
    "Generation",
    "PairScorer",
    "Parser",
    "Prediction",
    "Record",
    "Score",
    "SeededSampling",
    "TokenScore",
    "TrainedModel",
    "TrainedRun",
    "Translation",
    "Translator",
    "checkpoints_of",
    "explain_texts",
    "load",
    "make_pair_scorer",
    "make_parser",
    "make_translator",
    "mean_weights",
    "open_run",
    "translation_model",
]
