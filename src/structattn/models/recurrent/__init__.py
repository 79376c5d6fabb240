"""Recurrent language models: LSTMs and Elman networks, alone or with a stack."""

from structattn.models.recurrent.deep import DeepRecurrence
from structattn.models.recurrent.initialization import initialize_recurrent
from structattn.models.recurrent.inputs import OneHot
from structattn.models.recurrent.language_model import RecurrentLanguageModel, RecurrentLanguageModelState
from structattn.models.recurrent.recurrence import Recurrence

__all__ = [
    "DeepRecurrence",
    "OneHot",
    "Recurrence",
    "RecurrentLanguageModel",
    "RecurrentLanguageModelState",
    "initialize_recurrent",
]
