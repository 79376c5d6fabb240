"""The grammar of question formation and tense reinflection, and its words (McCoy et al. 2020)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from structattn.support.errors import quoted

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


Words = tuple[str, ...]
RELATIVE_CLAUSES = ("ORC", "SRCt", "SRCi")
MODIFIERS = ("none", "PP", *RELATIVE_CLAUSES)
"""Modifiers of a noun: prepositional phrase, object relative clause, subject relative clause with or without object."""


class Clause(NamedTuple):
    """Structure of a sentence: the modifier of its subject, and each verb with the noun that it agrees with.

    Args:
        modifier: one of ``MODIFIERS``.
        main: the index of the main auxiliary, or of the main verb where verbs have no auxiliaries.
        agreements: the index of each auxiliary, or verb, and that of its subject's noun, from left to right.
    """

    modifier: str
    main: int
    agreements: tuple[tuple[int, int], ...]


def parse(words: Sequence[str], has_auxiliaries: bool) -> Clause:
    """Return the structure of a sentence that ends in its full stop; without auxiliaries, verbs are in the past.

    Raises:
        ValueError: the words are not a sentence of the grammar.
    """
    letters = "".join(_LETTERS[has_auxiliaries].get(word, "?") for word in words)
    found = _SENTENCES[has_auxiliaries].fullmatch(letters)
    if found is None:
        raise ValueError(f"{quoted(' '.join(words), 100)}: not a sentence of the grammar")
    main, modifier = found.end("subject"), _modifier(found["subject"])
    objects = () if found["object"] is None else _agreement(found["object"], found.start("object"))
    return Clause(modifier, main, (*_agreement(found["subject"], 0), (main, 1), *objects))


def _letters(has_auxiliaries: bool) -> dict[str, str]:
    """Return the letter of each word of a sentence: its part of speech; of verbs t (transitive) or i (intransitive)."""
    verbs = {verb if has_auxiliaries else past: "t" if verb in TRANSITIVE else "i" for verb, past in PAST.items()}
    return {word: tag for word, tag in _TAGS.items() if tag in "DNAPR"} | verbs | {".": "."}


def _sentences(auxiliary: str) -> re.Pattern[str]:
    modifier = f"PDN|RDN{auxiliary}t|R{auxiliary}tDN|R{auxiliary}i"
    phrase = f"DN(?:{modifier})?"
    return re.compile(rf"(?P<subject>{phrase}){auxiliary}(?:i|t(?P<object>{phrase}))\.")


_LETTERS: Final = {has_auxiliaries: _letters(has_auxiliaries) for has_auxiliaries in (False, True)}
_SENTENCES: Final = {False: _sentences(""), True: _sentences("A")}


def _modifier(phrase: str) -> str:
    """Return the modifier of a noun phrase of letters."""
    match phrase[2:4]:
        case "":
            return "none"
        case "PD":
            return "PP"
        case "RD":
            return "ORC"
    return "SRCt" if "t" in phrase else "SRCi"


def _agreement(phrase: str, start: int) -> tuple[tuple[int, int], ...]:
    """Return the agreement inside a noun phrase: the index of the auxiliary, or verb, and that of its noun."""
    modifier = _modifier(phrase)
    if modifier not in RELATIVE_CLAUSES:
        return ()
    return ((start + 5, start + 4),) if modifier == "ORC" else ((start + 3, start + 1),)


def _move(words: Words, position: int) -> Words:
    return (words[position], *words[:position], *words[position + 1 : -1], "?")


def move_main(words: Words) -> Words:
    """Return the question of a sentence: its main auxiliary moves to the front."""
    return _move(words, parse(words, True).main)


def move_first(words: Words) -> Words:
    """Return what the linear rule gives: the first auxiliary moves to the front."""
    return _move(words, next(index for index, word in enumerate(words) if part_of_speech(word) == "A"))


def agree_subject(words: Words) -> Words:
    """Return a sentence in the present tense: each verb agrees with its own subject."""
    return _reinflected(words, parse(words, False).agreements)


def agree_recent(words: Words) -> Words:
    """Return what the linear rule gives: each verb agrees with the nearest noun before it."""
    nouns = [index for index, word in enumerate(words) if word in NUMBER]
    verbs = [verb for verb, _ in parse(words, False).agreements]
    return _reinflected(words, [(verb, max(noun for noun in nouns if noun < verb)) for verb in verbs])


def _reinflected(words: Words, agreements: Sequence[tuple[int, int]]) -> Words:
    changed = list(words)
    for verb, noun in agreements:
        changed[verb] = present(BASE[words[verb]], NUMBER[words[noun]])
    return tuple(changed)


class Pair(NamedTuple):
    """A source, which ends in a task word, and its target."""

    source: Words
    target: Words


@dataclass(frozen=True)
class Transformation:
    """A task.

    Args:
        copy_word: the task word of sources whose target is the sentence itself.
        change_word: the task word of sources whose target is the transformed sentence.
        right: the hierarchical rule.
        wrong: the linear rule.
        has_auxiliaries: whether each verb has an auxiliary before it.
    """

    name: str
    copy_word: str
    change_word: str
    right: Callable[[Words], Words]
    wrong: Callable[[Words], Words]
    has_auxiliaries: bool

    def pair(self, sentence: Words, task_word: str) -> Pair:
        """Return a sentence with a task word, and its target."""
        return Pair((*sentence, task_word), self.target((*sentence, task_word)))

    def target(self, source: Words) -> Words:
        """Return the right target of a source.

        Raises:
            ValueError: the last word is not a task word, or the others are not a sentence of the grammar.
        """
        return self._apply(self.right, source)

    def wrong_target(self, source: Words) -> Words:
        """Return the target by the linear rule; see ``target``."""
        return self._apply(self.wrong, source)

    def modifier(self, source: Words) -> str:
        """Return the modifier of the subject of a source; see ``target``."""
        return parse(source[:-1], self.has_auxiliaries).modifier

    def split(self, line: Words) -> Pair:
        """Split source and target that were written one after the other, at the task word.

        Raises:
            ValueError: there is no task word.
        """
        for index, word in enumerate(line):
            if word in (self.copy_word, self.change_word):
                return Pair(line[: index + 1], line[index + 1 :])
        raise ValueError(f"{quoted(' '.join(line), 100)}: expected {self.copy_word} or {self.change_word}")

    @property
    def words(self) -> Words:
        """All words of sources and targets: 68 for question formation, 98 for tense reinflection."""
        forms = [*DETERMINERS, *NUMBER, *PREPOSITIONS, *RELATIVIZERS, *PAST, ".", self.copy_word, self.change_word]
        if self.has_auxiliaries:
            forms += [word for number in AUXILIARIES.values() for word in number] + ["?"]
        else:
            forms += [*BASE, *(present(verb, "singular") for verb in PAST)]
        return tuple(dict.fromkeys(forms))

    def _apply(self, rule: Callable[[Words], Words], source: Words) -> Words:
        if source[-1:] == (self.change_word,):
            return rule(source[:-1])
        if source[-1:] == (self.copy_word,):
            parse(source[:-1], self.has_auxiliaries)
            return source[:-1]
        raise ValueError(f"{quoted(' '.join(source), 100)}: expected {self.copy_word} or {self.change_word} at the end")


TRANSFORMATIONS: Mapping[str, Transformation] = MappingProxyType(
    {
        "question": Transformation("question", "decl", "quest", move_main, move_first, True),
        "tense": Transformation("tense", "PAST", "PRESENT", agree_subject, agree_recent, False),
    }
)
"""Name -> task."""


def main_verb(words: Sequence[str]) -> str | None:
    """Return the main verb of an output: its first verb, or the second if a relative clause follows the subject.

    The rule of McCoy et al. (2020) for outputs of which only the parts of speech are known to be right.
    """
    verbs = [word for word in words if part_of_speech(word) == "V"]
    index = int(len(words) > 2 and words[2] in RELATIVIZERS)
    return verbs[index] if index < len(verbs) else None
