"""Formal languages with exact probabilities: sampling of strings by length, and probabilities of strings.

- ``formal_language`` returns a ``Language`` by name; ``FORMAL_LANGUAGES`` maps names to descriptions.
- ``ContextFreeLanguage`` is the language of a probabilistic grammar; ``Variant`` names the two variants of a grammar.
- ``prepare_formal_language`` writes a prepared folder of the sizes ``FormalLanguageSizes``.
- ``dependencies`` gives the positions that determine the next symbol of the stack language.
"""

from structattn.data.formal_languages.context_free import ContextFreeLanguage
from structattn.data.formal_languages.language import Language
from structattn.data.formal_languages.normal_form import Variant
from structattn.data.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.data.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.data.formal_languages.stack_language import dependencies

__all__ = [
    "FORMAL_LANGUAGES",
    "ContextFreeLanguage",
    "FormalLanguageSizes",
    "Language",
    "Variant",
    "dependencies",
    "formal_language",
    "prepare_formal_language",
]
