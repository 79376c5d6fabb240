"""Base class of all settings, unions of settings classes, and paths of fields, with suggestions for misspelt ones."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Union, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, PydanticKnownError
from pydantic_core.core_schema import no_info_plain_validator_function

from structattn.support import validation
from structattn.support.errors import UsageError
from structattn.support.plugins import Registry, own_entry_hint
from structattn.support.reading import MAX_INTEGER

MAX_LAYERS = 1_000
"""The maximum number of layers of one part of a model."""
MAX_SIZE = 1_000_000
"""The maximum size of a vector, table, batch or window; more is a mistake and would only exhaust memory."""

Positive = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
NumLayers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Seed = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """Frozen group of settings; unknown keys, infinities, NaN, and truth values in place of numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true for a number: pydantic would take it for 1."""
        values = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(each, bool) for each in values):
            kinds = _scalars(cls.model_fields[info.field_name or ""].annotation)
            if bool not in kinds and kinds & {int, float}:
                raise PydanticKnownError("float_type" if float in kinds else "int_type")
        return value


def _scalars(annotation: Any) -> set[Any]:
    """Return the types of an annotation that are no containers."""
    parts = get_args(annotation)
    return {annotation} if not parts else set[Any]().union(*map(_scalars, parts))


def words_of(problem: ErrorDetails) -> str:
    """Return what is wrong with a value of settings."""
    match problem["type"]:
        case "union_tag_invalid":
            tag, expected = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "").split(", ")
            return f"{tag!r} is not one of {', '.join(expected)}{hint_for_name(tag, expected)}"
        case "union_tag_not_found" | "model_type" | "dict_type":
            return "expected settings, as {field: value}"
    return validation.words_of(problem)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message with the known names that have this one as a part, else with the most similar one.

    It is empty if there are none.
    """
    names = list(known)
    longer = [each for each in names if name in re.split("[_-]", each)]
    similar = longer or get_close_matches(name, names, n=1, cutoff=0.7)
    return f"; did you mean {' or '.join(similar)}?" if similar else ""


def hint_for_name(name: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: what it may mean, and how one adds a name of one's own."""
    return did_you_mean(name, known) + own_entry_hint(known)


@dataclass(frozen=True)
class OneOf:
    """Marks a union of settings classes: the value of a field, a literal of each class, selects the class.

    Args:
        field: the name of the field.
        default: the value that is assumed if the field is missing.
        from_text: converts text that stands for settings, such as ``of_kind``; None: no text is accepted.
        registered: returns the classes, for those that plugins may add to; the annotated type is then their base class.
            None: the classes are those of the annotated union.
    """

    field: str
    default: str
    from_text: Callable[[str], object] | None = None
    registered: Callable[[], Iterable[type[Settings]]] | None = None

    def __get_pydantic_core_schema__(self, union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema of the union, which looks for registered classes when it validates a value."""
        if self.registered is None:
            return handler.generate_schema(self.tagged(get_args(union)))
        return no_info_plain_validator_function(lambda value: self._adapter().validate_python(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of the union, with the classes that are registered now."""
        return handler(schema if self.registered is None else self._adapter().core_schema)

    def tagged(self, members: Iterable[type[Settings]]) -> Any:
        """Return the union of classes as pydantic spells it."""
        tags = tuple(Annotated[each, Tag(literal_of(each, self.field))] for each in members)
        union: Any = Annotated[Union[tags], Discriminator(self._selected)]  # noqa: UP007 - made at run time
        if self.from_text is not None:
            union = Annotated[union, BeforeValidator(self._converted, json_schema_input_type=union | str)]
        return union

    def _adapter(self) -> TypeAdapter[Any]:
        assert self.registered is not None
        return _adapter(self, tuple(self.registered()))

    def _selected(self, value: Any) -> Any:
        return value.get(self.field, self.default) if isinstance(value, dict) else getattr(value, self.field, None)

    def _converted(self, value: Any) -> Any:
        return self.from_text(value) if self.from_text is not None and isinstance(value, str) else value


@cache
def _adapter(one_of: OneOf, members: tuple[type[Settings], ...]) -> TypeAdapter[Any]:
    return TypeAdapter(one_of.tagged(members))


@dataclass(frozen=True)
class NameIn:
    """Marks text that is a name in a registry."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, text: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema of the names, which are looked up when a value is validated."""
        return no_info_plain_validator_function(self._validated)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of the names that are registered now."""
        return {"enum": list(self.registry), "type": "string"}

    def _validated(self, value: Any) -> str:
        if isinstance(value, str) and value in self.registry:
            return value
        *names, last = map(repr, self.registry)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})


def of_kind(name: str) -> dict[str, str]:
    """Return settings of a kind with its default values."""
    return {"kind": name}


def literal_of(settings: type[BaseModel], field: str) -> str:
    """Return the only value that a field of a settings class can have."""
    return str(get_args(settings.model_fields[field].annotation)[0])


def members_of(union: Any) -> tuple[type[Settings], ...]:
    """Return the settings classes of a union that ``OneOf`` marks."""
    members, one_of = get_args(union)
    return get_args(members) if one_of.registered is None else tuple(one_of.registered())


def registered_name(settings: type[Settings], field: str) -> str:
    """Return the name under which a settings class is registered, the literal of a field.

    Raises:
        UsageError: it has no such field, or one with a default, which digests and exported settings would leave out.
    """
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise UsageError(f"{settings!r}: expected a subclass of structattn.settings.Settings")
    annotation = settings.model_fields[field].annotation if field in settings.model_fields else None
    names = get_args(annotation)
    if len(names) != 1 or not isinstance(names[0], str):
        raise UsageError(f'{settings.__name__}: has no field {field} with its name, as {field}: Literal["decay"]')
    if not names[0].isidentifier():  # of which short forms such as 2.decay-4 consist
        raise UsageError(f"{settings.__name__}: {field} is {names[0]!r}; expected letters, digits and underscores")
    if not settings.model_fields[field].is_required():
        raise UsageError(f'{settings.__name__}: {field} has a default; expected {field}: Literal["{names[0]}"]')
    return names[0]


_MAX_DEPTH = 8  # of nested settings


def _paths(settings: type[BaseModel], prefix: str, depth: int) -> Iterator[str]:
    for name, field in settings.model_fields.items():
        yield prefix + name
        for member, is_item in _members_of_field(field):
            if depth:
                yield from _paths(member, f"{prefix}{name}.{'*.' * is_item}", depth - 1)


def _members_of_field(field: FieldInfo) -> Iterator[tuple[type[BaseModel], bool]]:
    for annotation in (field.annotation, *field.metadata):
        yield from _members(annotation, False)


def _members(annotation: Any, is_item: bool) -> Iterator[tuple[type[BaseModel], bool]]:
    """Yield the settings classes of an annotation, and whether they are items of a list."""
    if isinstance(annotation, OneOf) and annotation.registered is not None:
        yield from ((member, is_item) for member in annotation.registered())
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, is_item
    in_list = is_item or getattr(annotation, "__origin__", None) in (list, tuple)
    for argument in get_args(annotation):
        yield from _members(argument, in_list)


_SYNONYMS = {"eps": "epsilon", "lr": "learning_rate", "wd": "weight_decay"}  # of other programs
_ELSEWHERE = {"device": "the device is a GPU if there is one, else the CPU; CUDA_VISIBLE_DEVICES= hides the GPUs"}


def hint_for_unknown(settings: type[BaseModel], path: str, location: Sequence[int | str]) -> str:
    """Return the end of the message about an unknown field: what it may mean, its kinds, and the fields of its group.

    Args:
        settings: the class of all settings.
        path: the dotted path of the unknown field.
        location: the same in pydantic's form, with the names of the members of unions.
    """
    elsewhere, meant = _ELSEWHERE.get(path.rpartition(".")[2]), suggestion(settings, path, location)
    hint = f"; {elsewhere}" if elsewhere else f"; did you mean {meant}?" if meant else _others_with(settings, location)
    return f"{hint} [expected one of {', '.join(sorted(_fields_at(settings, location[:-1])))}]"


def _others_with(settings: type[BaseModel], location: Sequence[int | str]) -> str:
    """Return a hint at the other kinds of a group of settings that have the field; empty if there are none."""
    *group, kind, name = "", *location
    others = [each for each in _groups_at(settings, group[1:]) if name in each.model_fields]
    kinds = {each for other in others for each in _literals(other)} - {str(kind)}
    return f"; kinds that have it: {', '.join(sorted(kinds))}" if kinds else ""


def _fields_at(settings: type[BaseModel], location: Sequence[int | str]) -> set[str]:
    """Return the fields of the group of settings at a location; of all members of a union if it names none."""
    return {name for group in _groups_at(settings, location) for name in group.model_fields}


def _groups_at(settings: type[BaseModel], location: Sequence[int | str]) -> list[type[BaseModel]]:
    groups = [settings]
    for part in location:
        if named := [group for group in groups if part in _literals(group)]:
            groups = named
        elif isinstance(part, str) and any(part in group.model_fields for group in groups):
            fields = [group.model_fields[part] for group in groups if part in group.model_fields]
            groups = [member for field in fields for member, _ in _members_of_field(field)]
    return groups


def _literals(settings: type[BaseModel]) -> set[str]:
    names = [name for name in ("kind", "attention") if name in settings.model_fields]
    return {literal_of(settings, name) for name in names}


def _can_be_set(settings: type[BaseModel], other: str, pattern: str, location: Sequence[int | str]) -> bool:
    """Return whether the kinds at the location of an unknown field have another one."""
    theirs, parts = other.split("."), pattern.split(".")
    shared = next((i for i, pair in enumerate(zip(theirs, parts, strict=False)) if pair[0] != pair[1]), None)
    if shared is None:
        return False  # a group in which it is, or part of it
    steps = iter(enumerate(location))
    for part in parts[: shared + 1]:
        index = next((i for i, step in steps if part in ("*", str(step))), len(location))
    return theirs[shared] in _fields_at(settings, location[:index])


def suggestion(settings: type[BaseModel], path: str, location: Sequence[int | str] = ()) -> str | None:
    """Return the path of the field that an unknown one may mean; None if there is nothing similar.

    That is the most similar field of the same group of settings, else one of the same or a similar name in another.

    Args:
        settings: the class of all settings.
        path: the dotted path of the unknown field.
        location: the same with the names of the members of unions, which then have the field; empty: any may.
    """
    pattern = re.sub(r"\.\d+(?=\.|$)", ".*", path)
    parent, dot, name = pattern.rpartition(".")
    name = _SYNONYMS.get(name, name)
    # The path itself may be a field of another kind, say of another model.
    others = frozenset(_paths(settings, "", _MAX_DEPTH)) - {pattern}
    known = sorted(others, key=lambda each: (each.count("."), each))
    if location:
        known = [each for each in known if _can_be_set(settings, each, pattern, location)]
    siblings = {each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == parent}
    names: dict[str, str] = {}
    for each in known:
        names.setdefault(each.rpartition(".")[2], each)
    for cutoff in (0.74, 0.7):  # batch_size is that of training.batches rather than training.batches
        if similar := get_close_matches(name, siblings, n=1, cutoff=cutoff):
            return path.rpartition(".")[0] + dot + similar[0]
        if similar := get_close_matches(name, names, n=1, cutoff=0.8):
            return names[similar[0]]
    return None


def leaves(tree: object, enters: Callable[[list[Any]], object] = bool, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of each leaf of nested mappings, and of the lists that ``enters`` accepts."""
    if isinstance(tree, Mapping):
        items: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, list) and enters(tree):
        items = enumerate(tree)
    else:
        yield path, tree
        return
    for key, value in items:
        yield from leaves(value, enters, f"{path}.{key}" if path else str(key))
