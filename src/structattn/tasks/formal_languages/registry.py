"""Registry of all formal languages."""

from collections.abc import Mapping
from types import MappingProxyType

from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.copying import COPYING_DESCRIPTIONS, COPYING_LANGUAGES
from structattn.tasks.formal_languages.grammars import GRAMMAR_DESCRIPTIONS, GRAMMARS
from structattn.tasks.formal_languages.language import Language
from structattn.tasks.formal_languages.normal_form import VARIANTS, Variant
from structattn.tasks.formal_languages.stack_language import StackLanguage

FORMAL_LANGUAGES: Mapping[str, str] = MappingProxyType(
    {
        **GRAMMAR_DESCRIPTIONS,
        **COPYING_DESCRIPTIONS,
        StackLanguage.name: "brackets nested at most four deep, and digits that state the depth",
    }
)
"""The names of all formal languages, with one-line descriptions."""


def formal_language(name: str, variant: Variant = "faithful") -> Language:
    """Return the formal language of that name.

    Args:
        name: a key of ``FORMAL_LANGUAGES``: the five context-free languages of DuSell & Chiang (2020, 2024), the seven
            copying languages of DuSell & Chiang (2023), and the stack language of the Discrete Transformer.
        variant: ``faithful`` or ``reference``; they differ only for the context-free languages.

    Raises:
        UsageError: no language or variant has that name.
    """
    if name not in FORMAL_LANGUAGES:
        raise UsageError(f"formal language {name!r} is unknown; expected one of {', '.join(FORMAL_LANGUAGES)}")
    if variant not in VARIANTS:
        raise UsageError(f"variant {variant!r} is unknown; expected one of {', '.join(VARIANTS)}")
    if name in GRAMMARS:
        return ContextFreeLanguage(name, variant, GRAMMARS[name]())
    return COPYING_LANGUAGES[name] if name in COPYING_LANGUAGES else StackLanguage()
