"""The settings of a whole run, and how they are read from YAML and from ``path.to.field=value``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from structattn.settings.base import Settings
from structattn.settings.model import LanguageModelSettings
from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError


class RunSettings(Settings):
    """Everything that decides a training run: its data, its model, its training, its seed."""

    task: Literal["formal_language", "language_modeling"]
    data: Path = Field(description="a prepared folder")
    model: LanguageModelSettings = LanguageModelSettings()
    training: TrainingSettings = TrainingSettings()
    seed: int = Field(default=1, ge=0)

    def to_yaml(self) -> str:
        """The resolved settings; reading them back gives an equal object."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _set_path(tree: dict[str, Any], assignment: str) -> None:
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise SettingsError(f"{assignment!r}: expected path.to.field=value")
    *parents, last = path.split(".")
    node = tree
    for name in parents:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise SettingsError(f"{path}: {name!r} holds {node!r}, which has no fields")
    try:
        node[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: {text!r} is not a YAML value: {error}") from None


def _described(error: ValidationError, source: str) -> str:
    lines = []
    for problem in error.errors():
        path = ".".join(str(part) for part in problem["loc"]) or "(the whole)"
        given = "" if problem["type"] in {"missing", "extra_forbidden"} else f", got {problem['input']!r}"
        lines.append(f"{path}: {problem['msg']}{given}")
    return f"{source}: " + "; ".join(lines)


def resolve_settings(tree: dict[str, Any], overrides: Sequence[str] = (), source: str = "settings") -> RunSettings:
    """Apply ``path.to.field=value`` to a tree of plain values, then check it.

    Raises:
        SettingsError: a key is unknown or a value impossible; the message gives the dotted path.
    """
    for assignment in overrides:
        _set_path(tree, assignment)
    try:
        return RunSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(_described(error, source)) from None


def load_settings(path: Path, overrides: Sequence[str] = ()) -> RunSettings:
    """Read settings from a YAML file and apply ``path.to.field=value`` to them.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or does not fit.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise SettingsError(f"{path}: expected a mapping of settings, found {type(tree).__name__}")
    return resolve_settings(tree, overrides, str(path))
