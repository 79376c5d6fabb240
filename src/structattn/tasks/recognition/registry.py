"""The languages to recognize by name: those of FLaRe, those of this library, and own files."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from structattn.settings.base import did_you_mean
from structattn.settings.choices import Protocol
from structattn.support.errors import UsageError
from structattn.support.plugins import own_entry_hint
from structattn.tasks.formal_languages.language_files.language_file import LanguageFile, find_language_file
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.tasks.recognition.adapted import AdaptedLanguage
from structattn.tasks.recognition.arithmetic import OPERATIONS, double_root, square_root
from structattn.tasks.recognition.copies import COPIES
from structattn.tasks.recognition.language import FlareLanguage, RecognitionLanguage, Shape
from structattn.tasks.recognition.regular import REGULAR, as_many_opens
from structattn.tasks.recognition.stack_manipulation import STACK_MANIPULATION

_ROOTS: Final = MappingProxyType({"flare": square_root(double_root), "hard": square_root(math.isqrt)})
FLARE_LANGUAGES: Final[Mapping[str, FlareLanguage]] = MappingProxyType(
    {each.name: each for each in (*REGULAR, *COPIES, *OPERATIONS, STACK_MANIPULATION, _ROOTS["hard"])}
)
"""The eighteen languages of FLaRe; three have the strings of languages of this library, and take their place."""


_FORMS: Final[Mapping[str, tuple[tuple[int, ...], Shape | None]]] = MappingProxyType(
    {
        "dyck": ((0, 1, 0, 1), as_many_opens),
        "hardest-cfl": ((0, 1, 0, 1, 2, 3, 4), None),
        "marked-reverse-and-copy": ((0, 0, 1), None),
        "count-and-copy": ((0, 0, 1), None),
        "unmarked-copy-different-alphabets": ((0, 0, 1, 1), None),
    }
)
"""Classes of symbols, and shapes, of languages of this library; those of others are of one class."""


def recognition_descriptions() -> dict[str, str]:
    """Return all names with one-line descriptions, of plugins too but where FLaRe has the name."""
    return {name: each.description for name, each in FLARE_LANGUAGES.items()} | {
        name: description for name, description in FORMAL_LANGUAGES.items() if name not in FLARE_LANGUAGES
    }


def recognition_language(name: str, protocol: Protocol = "hard") -> RecognitionLanguage:
    """Return a language by its name.

    Args:
        name: a language of FLaRe or of this library.
        protocol: ``flare`` computes square roots in double precision, as FLaRe does.

    Raises:
        UsageError: no language has that name, or one of FLaRe and one of a plugin.
    """
    if name in FLARE_LANGUAGES and name in FORMAL_LANGUAGES.plugins:
        plugin = FORMAL_LANGUAGES.plugins[name].name
        raise UsageError(
            f"language {name!r} is one of FLaRe and one of the plugin {plugin}; expected another name there"
        )
    if name == _ROOTS[protocol].name:
        return _ROOTS[protocol]
    if name in FLARE_LANGUAGES:
        return FLARE_LANGUAGES[name]
    if name not in FORMAL_LANGUAGES:
        known = recognition_descriptions()
        expected = f"expected a file .cfg, .fsa or .regex, or one of {', '.join(known)}"
        hint = did_you_mean(name, known) + own_entry_hint(FORMAL_LANGUAGES)
        raise UsageError(f"language {name!r} is unknown; {expected}{hint}")
    return AdaptedLanguage(formal_language(name), *_FORMS.get(name, ()))


def find_recognition_language(
    name: str, protocol: Protocol = "hard"
) -> tuple[RecognitionLanguage, LanguageFile | None]:
    """Return a language by its name, or that of a file .cfg, .fsa or .regex with the file.

    Raises:
        UsageError: no language has that name.
        DataError: the file defines no language.
    """
    file = None if name in FLARE_LANGUAGES else find_language_file(name, "faithful")
    return (recognition_language(name, protocol), None) if file is None else (AdaptedLanguage(file.language), file)
