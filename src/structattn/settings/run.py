"""Settings of a run: its task, data, model, training and evaluation."""

import copy
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from structattn.settings.attention import Hard
from structattn.settings.base import NameIn, Seed, Settings, hint_for_name, hint_for_unknown, words_of
from structattn.settings.embeddings import Sinusoidal
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.models import ModelSettings
from structattn.settings.recipes import Plugins, load_plugins_of, settings_file
from structattn.settings.training import Masking, Recognition, TrainingSettings
from structattn.settings.transformer import LanguageModelSettings, TwoStreamBase
from structattn.settings.yaml import parse_yaml, read_mapping
from structattn.support.errors import SettingsError
from structattn.support.plugins import Plugin, Registry, load_again, loaded_plugins

MASKED_LANGUAGE_MODELING = "masked_language_modeling"
RECOGNITION = "recognition"

TASK_DESCRIPTIONS: Registry[str] = Registry(
    "task",
    {
        "formal_language": "predict the next symbol of strings of a formal language",
        "language_modeling": "predict the next token of text, by sentences or as a continuous stream",
        MASKED_LANGUAGE_MODELING: "predict masked tokens of text from the tokens on both sides",
        "masked_transduction": "map an input string to an output string, predicting all symbols at once",
        "autoregressive_transduction": "map an input string to an output string, symbol by symbol",
        RECOGNITION: "decide whether strings belong to a formal language",
        "translation": "translate sentences from one language to another",
    },
)


def unit_of_loss(task: str) -> str:
    """Return what the losses and rates of a task count."""
    return "string" if task == RECOGNITION else "token"


TRANSFORMATION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "question": "question formation: move the main auxiliary, not the first one, to the front",
        "tense": "tense reinflection: verbs in the present agree with their subject, not with the nearest noun",
    }
)


MAX_PATH_PARTS = 32
_MAX_PROBLEMS = 10  # in an error message


def require_unicode(path: Path) -> Path:
    """Return a path that settings, run cards and headers can contain.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError("the path is not UTF-8, so settings.yaml cannot contain it") from None
    return path


class RunSettings(Settings):
    """Settings of a run: task, data, model, training, evaluation and random seed."""

    task: Annotated[str, NameIn(TASK_DESCRIPTIONS)] = Field(description="task, as listed by `structattn list`")
    data: Annotated[Path, AfterValidator(require_unicode)] = Field(description="folder of prepared data")
    model: ModelSettings = Field(default=LanguageModelSettings(), description="model")
    training: TrainingSettings = Field(default=TrainingSettings(), description="training")
    evaluation: EvaluationSettings = Field(default=EvaluationSettings(), description="evaluation and translation")
    seed: Seed = Field(default=1, description="random seed")
    plugins: Plugins = Field(default=(), exclude=True)  # the run card records those that it uses

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how these settings are pickled: another process loads the plugins before it validates them."""
        return _unpickled, (loaded_plugins(), self.model_dump(mode="json"))

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        training = self.training
        transductions = "masked_transduction", "autoregressive_transduction"
        loops = getattr(self.model, "loops", None)
        for field, given, tasks in (
            ("training.select_by: 'bleu'", training.select_by == "bleu", ("translation",)),
            ("evaluation.dropout: true", self.evaluation.dropout, transductions),
            ("training.masking:", training.masking != Masking(), (MASKED_LANGUAGE_MODELING,)),
            ("training.recognition:", training.recognition != Recognition(), (RECOGNITION,)),
            ("model.loops.padding:", loops is not None and loops.is_padded, (RECOGNITION,)),
            ("training.tree_regularization:", training.tree_regularization is not None, ("language_modeling",)),
            ("training.curriculum:", bool(training.curriculum), ("formal_language", "language_modeling")),
        ):
            if given and self.task not in tasks:
                raise ValueError(f"{field} needs the task {' or '.join(map(repr, tasks))}; the task is {self.task!r}")
        return self

    @model_validator(mode="after")
    def _check_positions(self) -> Self:
        positions = getattr(self.model, "positions", None)
        known = self.task == MASKED_LANGUAGE_MODELING or self.task.endswith("transduction")
        if isinstance(positions, Sinusoidal) and positions.direction == "backward" and not known:
            raise ValueError(
                "model.positions.direction: 'backward' counts from the end of the text, which is not known when the "
                "next token is predicted; it needs the task 'masked_language_modeling', 'masked_transduction' or "
                f"'autoregressive_transduction'; the task is {self.task!r}"
            )
        return self

    @model_validator(mode="after")
    def _check_temperature(self) -> Self:
        if self.training.temperature is not None and not _contains(self.model, (Hard, TwoStreamBase)):
            raise ValueError("training.temperature: needs hard attention; the model has none")
        return self

    @model_validator(mode="after")
    def _check_tree_regularization(self) -> Self:
        if self.training.tree_regularization is not None:
            try:
                self.training.tree_regularization.require_fits(self.model)
            except ValueError as error:
                raise ValueError(f"training.tree_regularization: {error}") from None
        return self

    @model_validator(mode="after")
    def _check_checkpoints(self) -> Self:
        count, kept = self.evaluation.num_checkpoints("last"), self.training.keep_checkpoints
        if count > kept:
            raise ValueError(
                f"evaluation.checkpoint: {self.evaluation.checkpoint!r} needs {count} checkpoints; "
                f"training.keep_checkpoints is {kept}"
            )
        return self

    def to_yaml(self) -> str:
        """Return all settings, including defaults, as YAML that can be read back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _unpickled(plugins: Sequence[Plugin], tree: dict[str, Any]) -> RunSettings:
    for plugin in plugins:
        load_again(plugin)
    return RunSettings.model_validate(tree)


def _contains(settings: object, kinds: tuple[type[Settings], ...]) -> bool:
    """Return whether settings are of one of the classes, or contain some at any depth."""
    if isinstance(settings, kinds):
        return True
    parts = tuple(vars(settings).values()) if isinstance(settings, Settings) else settings
    return isinstance(parts, tuple) and any(_contains(part, kinds) for part in parts)


_FOLDERS = ("data", "model.pretrained")  # whose names may look like numbers or truth values


def assign(tree: dict[str, Any], assignment: str) -> None:
    """Apply an override ``path.to.field=value`` to nested mappings; the value is parsed as YAML, unless it is a folder.

    Raises:
        SettingsError: the override is malformed.
    """
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise SettingsError(f"{assignment!r}: expected path.to.field=value")
    try:
        value = text if path in _FOLDERS and text != "null" else parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{path}: {_shorten(repr(text), 100)} is not a YAML value: {error}") from None
    set_path(tree, path, value)


def set_path(tree: dict[str, Any], path: str, value: object) -> None:
    """Set the field ``path.to.field`` in nested mappings; missing mappings are created.

    Raises:
        SettingsError: a parent of the field is not a mapping, or the path has more than ``MAX_PATH_PARTS`` parts.
    """
    *parents, last = path.split(".")
    if len(parents) >= MAX_PATH_PARTS:
        raise SettingsError(f"{_shorten(path, 100)}: {len(parents) + 1} parts; expected at most {MAX_PATH_PARTS}")
    node = tree
    for name in parents:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise SettingsError(f"{path}: {name!r} is {_shorten(repr(node), 100)}, which has no fields")
    node[last] = value


def _dotted(location: tuple[int | str, ...], missing: bool, tree: object) -> str:
    """Return the dotted path of an error in ``tree``; pydantic's location also names the members of unions."""
    parts = []
    for index, part in enumerate(location):
        if isinstance(tree, dict) and part not in tree and not (missing and index == len(location) - 1):
            continue  # the member of a union, not a field
        if part == tree:
            continue  # a kind that is given by its name alone
        parts.append(str(part))
        tree = _child(tree, part)
    return ".".join(parts) or "(the whole)"


def _child(tree: object, part: int | str) -> object:
    if isinstance(tree, dict):
        return tree.get(part)
    present = isinstance(tree, list) and isinstance(part, int) and part < len(tree)
    return tree[part] if present else None  # type: ignore[index]  # narrowed in `present`


def error_message(
    error: ValidationError,
    tree: object,
    source: str,
    overrides: Sequence[str] = (),
    without_overrides: ValidationError | None = None,
    settings: type[Settings] | None = None,
) -> str:
    """Return pydantic's errors as one message, each with its source (file or override) and dotted path.

    Args:
        error: the errors.
        tree: the settings, with the overrides.
        source: the origin of the settings, for instance a file.
        overrides: the overrides.
        without_overrides: the errors that the settings have without the overrides; None: none.
        settings: the class of the settings; the fields that unknown ones may mean are then named.
    """
    in_source = [(each["type"], each["loc"]) for each in without_overrides.errors()] if without_overrides else []
    lines = []
    problems = [each for each in error.errors() if not _follows_from_others(each)]
    for problem in problems[:_MAX_PROBLEMS]:
        path = _dotted(problem["loc"], problem["type"] == "missing", tree)
        words, got = words_of(problem), repr(problem["input"])
        hides_input = problem["type"] in {"missing", "extra_forbidden"} or isinstance(problem["input"], dict)
        stated = hides_input or (problem["type"] == "value_error" and got in words)
        given = "" if stated else f", got {_shorten(got, 100)}"
        suspects = [text for text in overrides if _may_set(text, problem["loc"])][-1:]
        if overrides and not suspects and (problem["type"], problem["loc"]) not in in_source:
            suspects = _of_same_group(overrides, problem["loc"]) or list(overrides)
        if suspects[-1:] == [f"{path}="]:
            words, given = f"is empty; {words}", ""
        named = "" if suspects and suspects[-1].partition("=")[0] == path else f": {_shorten(path, 100)}"
        where = f"{_shorten(' '.join(suspects), 100) if suspects else source}{named}"
        hint = ""
        if settings is not None and problem["type"] == "extra_forbidden":
            hint = hint_for_unknown(settings, path, problem["loc"])
        if problem["type"] == "literal_error":
            hint = hint_for_name(str(problem["input"]), re.findall("'([^']*)'", problem["ctx"]["expected"]))
        lines.append(f"{where}: {_shorten(words, 500)}{given}{hint}")
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(lines) + more


def _follows_from_others(problem: ErrorDetails) -> bool:
    """Return whether items that are reported themselves are missing from the length of a list."""
    return problem["type"] == "too_short" and len(problem["input"]) >= problem["ctx"]["min_length"]


def _shorten(text: str, length: int) -> str:
    """Return a text with at most ``length`` characters, for messages."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _of_same_group(overrides: Sequence[str], location: tuple[int | str, ...]) -> list[str]:
    """Return the overrides of the group of settings, such as ``model``, in which an error is."""
    return [text for text in overrides if location and text.partition("=")[0].split(".")[0] == str(location[0])]


def _may_set(assignment: str, location: tuple[int | str, ...]) -> bool:
    """Return whether an override may have set the field at a location, which also names members of unions."""
    steps = iter(str(part) for part in location)
    return all(part in steps for part in assignment.partition("=")[0].split("."))


def resolve_settings(tree: dict[str, Any], overrides: Sequence[str] = (), source: str = "settings") -> RunSettings:
    """Apply overrides to nested mappings and validate the result.

    Args:
        tree: the settings as read from YAML; changed in place.
        overrides: ``path.to.field=value``, the values in YAML.
        source: the origin of ``tree``, for messages.

    Raises:
        SettingsError: a key is unknown or a value invalid; the message has the dotted path.
        TypeError: ``overrides`` is one string.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides is the string {overrides!r}; expected a sequence of strings")
    given = copy.deepcopy(tree) if overrides else tree
    for assignment in overrides:
        assign(tree, assignment)
    try:
        return RunSettings.model_validate(tree)
    except ValidationError as error:
        before = _errors_of(given) if overrides else None
        raise SettingsError(error_message(error, tree, source, overrides, before, RunSettings)) from None


def _errors_of(tree: dict[str, Any]) -> ValidationError | None:
    try:
        RunSettings.model_validate(tree)
    except ValidationError as error:
        return error
    return None


def load_settings(path: str | PathLike[str], overrides: Sequence[str] = ()) -> RunSettings:
    """Read the settings of a run from a YAML file, and load its plugins, unless it lies in a run folder.

    Args:
        path: the file, or the name of a recipe, as ``text``.
        overrides: ``path.to.field=value``, the values in YAML.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or has an unknown key or an invalid value.
    """
    file = settings_file(path)
    tree = read_mapping(file)
    if "base" in tree and "task" not in tree:
        raise SettingsError(f"{path}: settings of a sweep, as they have a `base`; `structattn sweep` trains them")
    load_plugins_of(tree, file)
    return resolve_settings(tree, overrides, str(path))


LIMITS = ("max_epochs", "max_updates", "max_minutes", "early_stopping_patience")
"""Fields of the training settings that only say when a run ends."""


def limits_of(settings: RunSettings) -> dict[str, Any]:
    """Return the limits by name; None where there is no limit."""
    return {name: getattr(settings.training, name) for name in LIMITS}


def with_limits(settings: RunSettings, limits: Mapping[str, Any]) -> RunSettings:
    """Return the settings with other limits; those not given stay.

    Raises:
        SettingsError: a name is not that of a limit, or a value is invalid.
    """
    if unknown := sorted(limits.keys() - {*LIMITS}):
        raise SettingsError(f"training.{unknown[0]}: is not a limit; the limits of a run are {', '.join(LIMITS)}")
    tree = settings.model_dump(mode="json")
    tree["training"] |= limits
    return resolve_settings(tree, source="limits")
