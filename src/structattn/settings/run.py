"""The settings of a whole run, and how they are read from YAML and from ``path.to.field=value``."""

from collections.abc import Sequence
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
    """Everything that decides a training run: its data, its model, its training, its seed; and how it is used."""

    task: Literal[
        "formal_language", "language_modeling", "masked_transduction", "autoregressive_transduction", "translation"
    ]
    data: Path = Field(description="a prepared folder")
    model: ModelSettings = LanguageModelSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    seed: int = Field(default=1, ge=0)

    @model_validator(mode="after")
    def _bleu_is_of_translations(self) -> Self:
        if self.training.select_by == "bleu" and self.task != "translation":
            raise ValueError(f"training.select_by: 'bleu' is for translation; the task is {self.task!r}")
        return self

    @model_validator(mode="after")
    def _checkpoints_are_kept(self) -> Self:
        count, kept = self.evaluation.last_checkpoints, self.training.keep_checkpoints
        if count > kept:
            raise ValueError(
                f"evaluation.checkpoint: {self.evaluation.checkpoint!r} is of {count} checkpoints, and "
                f"training.keep_checkpoints is {kept}"
            )
        return self

    def to_yaml(self) -> str:
        """The resolved settings; reading them back gives an equal object."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def assign(tree: dict[str, Any], assignment: str) -> None:
    """Set ``path.to.field=value`` in a tree; the value is read as YAML.

    Raises:
        SettingsError: it is no such assignment.
    """
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise SettingsError(f"{assignment!r}: expected path.to.field=value")
    try:
        set_path(tree, path, yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: {text!r} is not a YAML value: {error}") from None


def set_path(tree: dict[str, Any], path: str, value: object) -> None:
    """Set the field at ``path.to.field`` in a tree of mappings, making those that are missing.

    Raises:
        SettingsError: something on the way is no mapping.
    """
    *parents, last = path.split(".")
    node = tree
    for name in parents:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise SettingsError(f"{path}: {name!r} holds {node!r}, which has no fields")
    node[last] = value


def _dotted(location: tuple[int | str, ...], missing: bool, tree: object) -> str:
    """A location as it is written in ``tree``: pydantic's names the kinds of settings that it chose on the way, too."""
    parts = []
    for index, part in enumerate(location):
        if isinstance(tree, dict) and part not in tree and not (missing and index == len(location) - 1):
            continue  # a kind, not a field
        if part == tree:
            continue  # a kind that was given by its name alone
        parts.append(str(part))
        inside = (isinstance(tree, dict) and part in tree) or isinstance(tree, list)
        tree = tree[part] if inside else None  # type: ignore[index]  # one of the two
    return ".".join(parts) or "(the whole)"


def described(error: ValidationError, tree: object, source: str, overrides: Sequence[str] = ()) -> str:
    """What pydantic found in a tree, with the path of each field and the file or the override that it comes from."""
    lines = []
    for problem in error.errors():
        path = _dotted(problem["loc"], problem["type"] == "missing", tree)
        says_enough = problem["type"] in {"missing", "extra_forbidden"} or isinstance(problem["input"], dict)
        given = "" if says_enough else f", got {problem['input']!r}"
        culprits = [text for text in overrides if _may_concern(text, problem["loc"])]
        lines.append(f"{culprits[-1] if culprits else source}: {path}: {problem['msg']}{given}")
    return "; ".join(lines)


def _may_concern(assignment: str, location: tuple[int | str, ...]) -> bool:
    """Whether an override set the field at a location, which also names the kinds of what it passes through."""
    steps = iter(str(part) for part in location)
    return all(part in steps for part in assignment.partition("=")[0].split("."))


def resolve_settings(tree: dict[str, Any], overrides: Sequence[str] = (), source: str = "settings") -> RunSettings:
    """Apply ``path.to.field=value`` to a tree of plain values, then check it.

    Raises:
        SettingsError: a key is unknown or a value impossible; the message gives the dotted path.
    """
    for assignment in overrides:
        assign(tree, assignment)
    try:
        return RunSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(described(error, tree, source, overrides)) from None


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or holds something else.
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


def load_settings(path: Path, overrides: Sequence[str] = ()) -> RunSettings:
    """Read settings from a YAML file and apply ``path.to.field=value`` to them.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or does not fit.
    """
    return resolve_settings(read_mapping(path), overrides, str(path))
