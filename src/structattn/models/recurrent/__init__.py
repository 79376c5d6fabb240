"""Recurrent language models: LSTMs and Elman networks, alone or with a stack."""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.models.recurrent.deep import DeepRecurrence
    from structattn.models.recurrent.initialization import initialize_recurrent
    from structattn.models.recurrent.language_model import RecurrentLanguageModel, RecurrentLanguageModelState
    from structattn.models.recurrent.recurrence import OneHot, Recurrence

__all__ = [
    "DeepRecurrence",
    "OneHot",
    "Recurrence",
    "RecurrentLanguageModel",
    "RecurrentLanguageModelState",
    "initialize_recurrent",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "DeepRecurrence": "structattn.models.recurrent.deep",
        "OneHot": "structattn.models.recurrent.recurrence",
        "Recurrence": "structattn.models.recurrent.recurrence",
        "RecurrentLanguageModel": "structattn.models.recurrent.language_model",
        "RecurrentLanguageModelState": "structattn.models.recurrent.language_model",
        "initialize_recurrent": "structattn.models.recurrent.initialization",
    },
)
