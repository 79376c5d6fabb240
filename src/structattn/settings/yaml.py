"""Parse YAML from files and command lines within limits, so that no text can exhaust memory or time."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from structattn.support.errors import SettingsError
from structattn.support.reading import read_bytes

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 100_000
"""The maximum number of scalars, lists and mappings, where each alias counts as a copy of what it refers to."""
MAX_SCALAR = 10_000
"""The maximum number of characters of one scalar."""
_MAX_MESSAGE = 200
_TAGS = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
_MERGE = "tag:yaml.org,2002:merge"


class _Fault(yaml.MarkedYAMLError):
    """A value that is not allowed, at the start of a node."""

    def __init__(self, mark: Any, problem: str) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Loader of the types that JSON has as well, within the limits; dates are text.

    The size and depth of a node, with aliases expanded, follow from those of its children when it is composed.
    """

    # Without None, which gives the error about an unknown tag, it would be a KeyError.
    yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*_TAGS, None)}  # noqa: RUF012
    yaml_implicit_resolvers = {  # noqa: RUF012 - SafeLoader declares both without ClassVar
        first: [(tag, pattern) for tag, pattern in resolvers if tag in (*_TAGS, _MERGE)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = 0
        self._extents: dict[Node, tuple[int, int]] = {}

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._level += 1
        if self._level > MAX_DEPTH:  # before PyYAML recurses
            raise _Fault(event.start_mark, f"nested more than {MAX_DEPTH} levels deep")
        if len(self._extents) > MAX_NODES:  # before the rest is read
            raise _Fault(event.start_mark, f"more than {MAX_NODES:,} values")
        node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(event, AliasEvent):
            if node not in self._extents:
                raise _Fault(event.start_mark, f"the alias *{event.anchor} is part of what it refers to")
        elif node is not None:
            self._extents[node] = self._extent(node)
        return node

    def _extent(self, node: Node) -> tuple[int, int]:
        """Return the number of nodes and of levels of a new node."""
        children = [self._extents[child] for child in _children(node)]
        size, depth = 1 + sum(size for size, _ in children), 1 + max((depth for _, depth in children), default=0)
        if size > MAX_NODES or depth > MAX_DEPTH:
            limits = f"{MAX_NODES:,} values or {MAX_DEPTH} levels, with aliases expanded"
            raise _Fault(node.start_mark, f"more than {limits}")
        if isinstance(node, ScalarNode):
            _check_scalar(node)
        if isinstance(node, MappingNode):
            _check_keys(node)
        return size, depth

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ArithmeticError, LookupError, ValueError):  # of int(), float() and PyYAML's table of booleans
            kind = node.tag.rpartition(":")[2]
            raise _Fault(node.start_mark, f"{str(node.value)[:40]!r} is not of the type {kind}") from None
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise _Fault(node.start_mark, "the integer has more than 64 bits")
        return value


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, SequenceNode) else []


def _check_scalar(node: ScalarNode) -> None:
    if len(node.value) > MAX_SCALAR:
        raise _Fault(node.start_mark, f"a value of {len(node.value):,} characters; expected at most {MAX_SCALAR:,}")
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in node.value):
        raise _Fault(node.start_mark, f"{node.value[:40]!r} has a NUL or a surrogate; no file or path can contain it")


def _check_keys(node: MappingNode) -> None:
    """Check that no key occurs twice; YAML forbids it, but PyYAML would take the last value."""
    keys = Counter((key.tag, key.value) for key, _ in node.value if isinstance(key, ScalarNode))
    twice = [key for (_, key), count in keys.items() if count > 1]
    if twice:
        raise _Fault(node.start_mark, f"the key {twice[0][:40]!r} occurs twice")


def parse_yaml(text: str) -> Any:
    """Parse one YAML document: null, booleans, numbers, text, lists and mappings.

    Other types and tags are refused. Integers have at most 64 bits. Anchors, aliases and merge keys are allowed as
    long as the document has at most ``MAX_NODES`` values with all aliases expanded.

    Raises:
        ValueError: the text is not YAML or exceeds a limit; the message, one line, has line and column.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text):,} characters of YAML; expected at most {MAX_CHARACTERS:,}")
    try:
        loader = _Loader(text)
        try:
            return _copy(loader.get_single_data())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from None
    except (ValueError, OverflowError):  # of chr() in PyYAML's scanner
        raise ValueError("an escape sequence is no Unicode character") from None


def _copy(value: Any) -> Any:
    """Return a copy in which each alias has a value of its own: what is set in one part sets no other."""
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


def _one_line(error: yaml.YAMLError) -> str:
    """Return position and problem; PyYAML's own messages quote several lines."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())[:_MAX_MESSAGE]
    mark = error.problem_mark or error.context_mark
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return where + (error.problem or error.context or "not YAML")[:_MAX_MESSAGE]


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or contains something else.
    """
    try:
        content = read_bytes(path, 4 * MAX_CHARACTERS)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    return parse_mapping(content, str(path))


def parse_mapping(content: bytes, source: str) -> dict[str, Any]:
    """Parse the content of a YAML file that contains a mapping.

    Raises:
        SettingsError: it is not YAML, or contains something else; the message begins with ``source``.
    """
    try:
        tree = parse_yaml(content.decode())
    except ValueError as error:
        raise SettingsError(f"{source}: not YAML: {error}") from None
    if tree is None:
        raise SettingsError(f"{source}: is empty; expected a mapping of settings")
    if not isinstance(tree, dict):
        raise SettingsError(f"{source}: expected a mapping of settings, found {type(tree).__name__}")
    return tree
