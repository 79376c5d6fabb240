"""Settings of a run: its task, data, model, training and evaluation."""

import copy
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from structattn.settings.attention import Hard
from structattn.settings.base import NameIn, Seed, Settings
from structattn.settings.embeddings import Sinusoidal
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.models import ModelSettings
from structattn.settings.overrides import assign, error_message
from structattn.settings.recipes import Plugins, load_plugins_of, settings_file
from structattn.settings.training import Masking, Recognition, TrainingSettings
from structattn.settings.transformer import LanguageModelSettings, TwoStreamBase
from structattn.settings.yaml import read_mapping
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
        if self.evaluation.dropout and self.model.kind in ("gpt2", "roberta"):
            raise ValueError(
                f"evaluation.dropout: true needs a model of this package; model.kind is {self.model.kind!r}"
            )
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
