"""Models made of layers; they see numbers, never text."""

from structattn.models.block import Block
from structattn.models.initialization import initialize_language_model
from structattn.models.language_model import LanguageModel, LanguageModelState

__all__ = ["Block", "LanguageModel", "LanguageModelState", "initialize_language_model"]
