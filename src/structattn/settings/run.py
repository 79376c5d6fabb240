"""Settings of a run; reading them from YAML and from overrides ``path.to.field=value``."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from structattn.settings.base import Settings
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.model import LanguageModelSettings
from structattn.settings.models import ModelSettings
from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError


class RunSettings(Settings):
    """Settings of a run: task, data, model, training, evaluation and random seed."""

    task: Literal[
        "formal_language", "language_modeling", "masked_transduction", "autoregressive_transduction", "translation"
    ] = Field(description="task, as listed by `structattn list`")
    data: Path = Field(description="folder of prepared data")
    model: ModelSettings = Field(default=LanguageModelSettings(), description="model")
    training: TrainingSettings = Field(default=TrainingSettings(), description="training")
    evaluation: EvaluationSettings = Field(default=EvaluationSettings(), description="evaluation and translation")
    seed: int = Field(default=1, ge=0, description="random seed")

    @model_validator(mode="after")
    def _check_select_by(self) -> Self:
        if self.training.select_by == "bleu" and self.task != "translation":
            raise ValueError(f"training.select_by: 'bleu' needs the task 'translation'; the task is {self.task!r}")
        return self

    @model_validator(mode="after")
    def _check_evaluation_dropout(self) -> Self:
        if self.evaluation.dropout and not self.task.endswith("transduction"):
            raise ValueError(
                "evaluation.dropout: true needs the task 'masked_transduction' or 'autoregressive_transduction'; "
                f"the task is {self.task!r}"
            )
        return self

    @model_validator(mode="after")
    def _check_checkpoints(self) -> Self:
        count, kept = self.evaluation.last_checkpoints, self.training.keep_checkpoints
        if count > kept:
            raise ValueError(
                f"evaluation.checkpoint: {self.evaluation.checkpoint!r} needs {count} checkpoints; "
                f"training.keep_checkpoints is {kept}"
            )
        return self

    def to_yaml(self) -> str:
        """Return all settings, including defaults, as YAML that can be read back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def assign(tree: dict[str, Any], assignment: str) -> None:
    """Apply an override ``path.to.field=value`` to nested mappings; the value is parsed as YAML.

    Raises:
        SettingsError: the override is malformed.
    """
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise SettingsError(f"{assignment!r}: expected path.to.field=value")
    try:
        set_path(tree, path, yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: {text!r} is not a YAML value: {error}") from None


def set_path(tree: dict[str, Any], path: str, value: object) -> None:
    """Set the field ``path.to.field`` in nested mappings; missing mappings are created.

    Raises:
        SettingsError: a parent of the field is not a mapping.
    """
    *parents, last = path.split(".")
    node = tree
    for name in parents:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise SettingsError(f"{path}: {name!r} is {node!r}, which has no fields")
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
        inside = (isinstance(tree, dict) and part in tree) or isinstance(tree, list)
        tree = tree[part] if inside else None  # type: ignore[index]  # one of the two
    return ".".join(parts) or "(the whole)"


def error_message(error: ValidationError, tree: object, source: str, overrides: Sequence[str] = ()) -> str:
    """Return pydantic's errors as one message, each with its source (file or override) and dotted path."""
    lines = []
    for problem in error.errors():
        path = _dotted(problem["loc"], problem["type"] == "missing", tree)
        hides_input = problem["type"] in {"missing", "extra_forbidden"} or isinstance(problem["input"], dict)
        given = "" if hides_input else f", got {problem['input']!r}"
        suspects = [text for text in overrides if _may_set(text, problem["loc"])]
        lines.append(f"{suspects[-1] if suspects else source}: {path}: {problem['msg']}{given}")
    return "; ".join(lines)


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
    """
    for assignment in overrides:
        assign(tree, assignment)
    try:
        return RunSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(error_message(error, tree, source, overrides)) from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or contains something else.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise SettingsError(f"{path}: expected a mapping of settings, found {type(tree).__name__}")
    return tree


def load_settings(path: str | PathLike[str], overrides: Sequence[str] = ()) -> RunSettings:
    """Read the settings of a run from a YAML file.

    Args:
        path: the file.
        overrides: ``path.to.field=value``, the values in YAML.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or has an unknown key or an invalid value.
    """
    return resolve_settings(read_mapping(Path(path)), overrides, str(path))
