"""Words of the question formation and tense reinflection tasks, with their parts of speech (McCoy et al. 2020)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Number = Literal["singular", "plural"]

DETERMINERS: Final = ("the", "some", "my", "your", "our", "her")
PREPOSITIONS: Final = ("around", "near", "with", "upon", "by", "behind", "above", "below")
RELATIVIZERS: Final = ("who", "that")
AUXILIARIES: Final[Mapping[Number, tuple[str, ...]]] = MappingProxyType(
    {"singular": ("does", "doesn't"), "plural": ("do", "don't")}
)
_SINGULAR_NOUNS = (
    "newt", "orangutan", "peacock", "quail", "raven", "salamander", "tyrannosaurus", "unicorn", "vulture", "walrus",
    "xylophone", "yak", "zebra",
)  # fmt: skip
NOUNS: Final[Mapping[Number, tuple[str, ...]]] = MappingProxyType(
    {
        "singular": tuple(_SINGULAR_NOUNS),
        "plural": tuple(noun + ("es" if noun.endswith("s") else "s") for noun in _SINGULAR_NOUNS),
    }
)
INTRANSITIVE: Final = ("giggle", "smile", "sleep", "swim", "wait", "move", "change", "read", "eat")
TRANSITIVE: Final = (
    "entertain", "amuse", "high_five", "applaud", "confuse", "admire", "accept", "remember", "comfort",
)  # fmt: skip
_IRREGULAR = {"sleep": "slept", "swim": "swam", "read": "read", "eat": "ate"}


def _past(verb: str) -> str:
    return _IRREGULAR.get(verb, verb + ("d" if verb.endswith("e") else "ed"))


PAST: Final[Mapping[str, str]] = MappingProxyType({verb: _past(verb) for verb in (*INTRANSITIVE, *TRANSITIVE)})
"""Plural present of a verb -> its past."""

BASE: Final[Mapping[str, str]] = MappingProxyType({past: verb for verb, past in PAST.items()})
"""Past of a verb -> its plural present."""

NUMBER: Final[Mapping[str, Number]] = MappingProxyType({noun: number for number, of in NOUNS.items() for noun in of})
"""Noun -> its number."""


def present(verb: str, number: Number) -> str:
    """Return the present of a verb, given as plural present."""
    return verb if number == "plural" else f"{verb}s"


_TAGS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(DETERMINERS, "D"),
        **dict.fromkeys(PREPOSITIONS, "P"),
        **dict.fromkeys(RELATIVIZERS, "R"),
        **{word: "A" for forms in AUXILIARIES.values() for word in forms},
        **dict.fromkeys(NUMBER, "N"),
        **{form: "V" for verb, past in PAST.items() for form in (verb, present(verb, "singular"), past)},
        ".": "T",
        "?": "T",
    }
)


def part_of_speech(word: str) -> str:
    """Return the tag of a word: D, N, V, A(uxiliary), P, R(elativizer), T(erminal mark), or X for other words."""
    return _TAGS.get(word, "X")
