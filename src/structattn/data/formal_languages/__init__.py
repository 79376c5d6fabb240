"""Formal languages with exact probabilities: sampling by length, probabilities of strings, lower bounds."""

from structattn.data.formal_languages.context_free import ContextFreeLanguage
from structattn.data.formal_languages.language import Language
from structattn.data.formal_languages.normal_form import Reading
from structattn.data.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.data.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.data.formal_languages.stack_language import dependencies

__all__ = [
    "FORMAL_LANGUAGES",
    "ContextFreeLanguage",
    "FormalLanguage",
    "FormalLanguageSizes",
    "Language",
    "Reading",
    "dependencies",
    "formal_language",
    "prepare_formal_language",
]
