"""Formal languages with exact probabilities: sampling by length, probabilities of strings, lower bounds."""

from structattn.data.formal_languages.bound import lower_bound
from structattn.data.formal_languages.language import FormalLanguage
from structattn.data.formal_languages.normal_form import Reading
from structattn.data.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.data.formal_languages.protocol import Language
from structattn.data.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.data.formal_languages.stack_language import dependencies

__all__ = [
    "FORMAL_LANGUAGES",
    "FormalLanguage",
    "FormalLanguageSizes",
    "Language",
    "Reading",
    "dependencies",
    "formal_language",
    "lower_bound",
    "prepare_formal_language",
]
