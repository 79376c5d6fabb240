"""Context-free languages with exact probabilities: sampling by length, probabilities of strings, lower bounds."""

from structattn.data.formal_languages.bound import lower_bound
from structattn.data.formal_languages.grammars import FORMAL_LANGUAGES
from structattn.data.formal_languages.language import FormalLanguage, formal_language
from structattn.data.formal_languages.normal_form import Reading
from structattn.data.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language

__all__ = [
    "FORMAL_LANGUAGES",
    "FormalLanguage",
    "FormalLanguageSizes",
    "Reading",
    "formal_language",
    "lower_bound",
    "prepare_formal_language",
]
