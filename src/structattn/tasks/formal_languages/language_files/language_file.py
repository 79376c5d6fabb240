"""Languages from files, and from prepared folders, which hold the text of the file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from structattn.settings.choices import Variant
from structattn.settings.prepare import LANGUAGE_FILES
from structattn.support.errors import DataError, UsageError, quoted
from structattn.support.reading import content_of
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.language_files.draft import Draft, DraftRule
from structattn.tasks.formal_languages.language_files.grammar_file import read_grammar
from structattn.tasks.formal_languages.language_files.regular_expression import read_regular_expression
from structattn.tasks.formal_languages.language_files.tokens import Place, Syntax, Token, lines_of, weight_of
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, Language, formal_language
from structattn.text.folders.header import HEADER_NAME
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.reading import Notices, read_lines_from

SYNTAX = Syntax(())
_NOT_BARE: Final = re.compile(r"->|→|[\s\[\]#'\"|%]")
_EXPECTED = "expected STATE SYMBOL STATE [WEIGHT], or STATE [WEIGHT] for the end of a string"


def read_automaton(lines: Sequence[str], path: Path) -> Draft:
    """Read a finite automaton as a right-linear grammar: q0 -> a q1, and q1 -> ε where a string can end.

    The first state of the file is the start; the weights of a state are those of its transitions and of the end.

    Raises:
        DataError: a line has another form, or a state has neither transitions nor an end; the message names the place.
    """
    terminals: dict[str, Place] = {}
    targets: dict[str, Place] = {}
    rules: list[DraftRule] = []
    for *tokens, end in lines_of(SYNTAX.tokens(lines, path)):
        weight = weight_of(tokens.pop()) if tokens[-1].kind == "weight" else None
        state, *transition = tokens or [end]
        if not state.is_symbol or not _is_transition(transition):
            raise state.place.error(f"found a line of another form; {_EXPECTED}")
        right: tuple[str, ...] = ()
        if transition:
            symbol, target = transition
            targets.setdefault(_name(target), target.place)
            right = (_name(target),)
            if symbol.is_symbol:
                terminals.setdefault(symbol.text, symbol.place)
                right = (symbol.text, *right)
        rules.append(DraftRule(_name(state), right, weight, state.place))
    if not rules:
        raise DataError(path, f"has no transitions; {_EXPECTED}")
    for name in targets.keys() - {each.left for each in rules}:
        raise targets[name].error(f"{_shown(name)} has no transitions, and no string ends there; {_EXPECTED}")
    return Draft(path, rules[0].left, terminals, tuple(rules), shown=_shown)


def _is_transition(tokens: Sequence[Token]) -> bool:
    """Return whether tokens are a symbol, or ε, and a state; or none, for the end of a string."""
    if len(tokens) != 2:
        return not tokens
    symbol, target = tokens
    return (symbol.is_symbol or symbol.is_empty) and target.is_symbol


def _name(state: Token) -> str:
    """Return a nonterminal that a file of a grammar can hold without quotes, with %7c; in place of |."""
    return "state:" + _NOT_BARE.sub(lambda found: "".join(f"%{ord(each):x};" for each in found[0]), state.text)


def _shown(name: str) -> str:
    return name.replace(":", " ", 1)


MAX_BYTES: Final = 1 << 19
DEFINITION: Final = "definition"
"""The entry of the header of a prepared folder that has the text of a language file."""

_READERS: Mapping[str, Callable[[Sequence[str], Path], Draft]] = MappingProxyType(
    dict(zip(LANGUAGE_FILES, (read_grammar, read_automaton, read_regular_expression), strict=True))
)


@dataclass(frozen=True)
class LanguageFile:
    """A language and the text that defines it.

    Args:
        text: the lines of the file, without a byte-order mark and CRs before LFs.
        language: named as the file.
    """

    text: str
    language: ContextFreeLanguage

    @property
    def is_regular(self) -> bool:
        """Whether the text is a finite automaton or a regular expression."""
        return not self.language.name.endswith(LANGUAGE_FILES[0])


def read_language_file(path: str | PathLike[str]) -> LanguageFile:
    """Read a grammar (.cfg), a finite automaton (.fsa) or a regular expression (.regex) of at most 512 KiB.

    Raises:
        DataError: the file cannot be read, or its name is not UTF-8, or it defines no language whose probabilities can
            be computed; the message has line and column.
    """
    path = Path(path)
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise DataError(path, f"the name is not UTF-8, so {HEADER_NAME} cannot contain it") from None
    lines = read_lines_from(BytesIO(content_of(path, MAX_BYTES)), path, Notices())
    return parse_language_file(path.name, "".join(line.text + "\n" for line in lines), path)


def parse_language_file(name: str, text: str, path: Path) -> LanguageFile:
    """Read the text of a language file.

    The suffix of ``name`` says what the text is; ``path`` is for messages.

    Raises:
        DataError: see ``read_language_file``.
    """
    read = _READERS.get(Path(name).suffix)
    if read is None:
        raise DataError(path, f"is named {quoted(name)}; expected a name that ends in {', '.join(LANGUAGE_FILES)}")
    if len(text) > MAX_BYTES:
        raise DataError(path, f"has {len(text)} characters; expected at most {MAX_BYTES}")
    grammar = read(text.removesuffix("\n").split("\n"), path).grammar()
    try:
        return LanguageFile(text, ContextFreeLanguage(name, "faithful", grammar))
    except ValueError as error:
        raise DataError(path, str(error)) from None


def find_language_file(name: str, variant: Variant) -> LanguageFile | None:
    """Return the language of a file; None for the name of a language, or what is neither.

    Raises:
        UsageError: the variant is not ``faithful``, the only one of files.
        DataError: see ``read_language_file``.
    """
    if name in FORMAL_LANGUAGES or not name.endswith(LANGUAGE_FILES):
        return None
    if variant != "faithful":
        raise UsageError(f"{name}: variant is {variant!r}; expected 'faithful', the only one of a language from a file")
    return read_language_file(Path(name))


def prepared_language(prepared: PreparedFolder) -> Language:
    """Return the language of a prepared folder, which need not be trusted.

    Raises:
        DataError: the header names no language, or its text defines none.
        UsageError: no language has the name that the header states.
    """
    path, extra = prepared.path / HEADER_NAME, prepared.header.extra
    name, variant, text = (extra.get(key) for key in ("language", "variant", DEFINITION))
    if not (isinstance(name, str) and isinstance(variant, str) and isinstance(text, str | None)):
        raise DataError(
            path, f"language, variant and {DEFINITION} are {quoted(name)}, {quoted(variant)}, {quoted(text)}"
        )
    if text is None:
        return formal_language(name, cast("Variant", variant))
    return parse_language_file(name, text, Path(f"{path} ({name:.60})")).language
