"""Preparation of text for language modeling: ``prepare_language_modeling`` and its ``TextSettings``."""

from structattn.data.language_modeling.prepare import prepare_language_modeling
from structattn.data.language_modeling.settings import TextSettings

__all__ = ["TextSettings", "prepare_language_modeling"]
