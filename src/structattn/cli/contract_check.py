"""Check what plugins register against the contracts: mechanisms, positions, languages, transductions and tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from structattn.attention.contract import CHECKS, CROSS_CHECKS
from structattn.attention.positions.contract import ADDED_CHECKS, SCORES_CHECKS
from structattn.models.builders.contract import check_cross_initial_values, check_initial_values
from structattn.models.builders.mechanisms import build_attention, build_cross_attention
from structattn.settings.base import Settings
from structattn.settings.embeddings import POSITIONS, Positions
from structattn.settings.mechanisms import MECHANISMS, Mechanism
from structattn.settings.run import resolve_settings
from structattn.settings.transformer import TransformerSettings
from structattn.support.errors import BrokenContractError, DataError, SettingsError, UsageError
from structattn.support.files import temporary_folder
from structattn.support.plugins import Plugin, Registry, load_plugin
from structattn.support.validation import first_problem
from structattn.tasks.contract import TASK_CHECKS
from structattn.tasks.formal_languages.contract import LANGUAGE_CHECKS
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.tasks.model import build_model_for
from structattn.tasks.registry import TASKS, TaskKind
from structattn.tasks.transductions.contract import TRANSDUCTION_CHECKS
from structattn.tasks.transductions.registry import TRANSDUCTIONS
from structattn.text.folders.prepared import open_prepared

_MODEL = TransformerSettings(d_model=6, num_heads=3)
_NUM_HEADS, _HEAD_SIZE = 3, 4  # of positions


@dataclass(frozen=True)
class Verdict:
    """The result of one check of what a plugin registers.

    Args:
        rule: what the check demands.
        problem: what was found instead; empty if it does what it must.
    """

    kind: str
    name: str
    check: str
    rule: str
    problem: str


def verdicts_on(plugins: Sequence[str]) -> list[Verdict]:
    """Load plugins, and check all that they register, with small sizes and in evaluation mode.

    Of mechanisms, layers and cross-attention are checked; tasks are built on strings of the Dyck language.

    Raises:
        UsageError: a plugin cannot be loaded or has nothing that could be checked, or settings are needed that are no
            sizes, or a task refuses the data.
    """
    loaded = [load_plugin(name) for name in plugins]
    found = [*_layers(loaded), *_cross_layers(loaded), *_positions(loaded), *_strings(loaded), *_tasks(loaded)]
    if not found:
        raise UsageError(f"{', '.join(plugins)}: registers nothing that could be checked")
    return found


def _entries(registry: Registry[Any], loaded: Sequence[Plugin]) -> list[tuple[str, Any]]:
    return [(name, entry) for name, entry in registry.items() if registry.plugins.get(name) in loaded]


def _verdicts(
    kind: str, name: str, checks: Mapping[str, Callable[..., None]], arguments: Callable[[], Sequence[Any]]
) -> Iterator[Verdict]:
    """Yield the verdict of each check, given what makes its arguments."""
    for check_name, check in checks.items():
        rule = " ".join((getdoc(check) or "").partition("\n\n")[0].split())
        yield Verdict(kind, name, check_name, rule, _problem(check, arguments))


def _problem(check: Callable[..., None], arguments: Callable[[], Sequence[Any]]) -> str:
    try:
        check(*arguments())
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of the user raises
        words = " ".join(str(error).split())
        return words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"
    return ""


def _layers(loaded: Sequence[Plugin]) -> Iterator[Verdict]:
    for name, entry in _entries(MECHANISMS, loaded):
        if entry.layer or entry.self_attention:
            layer = partial(_layer, entry)
            checks = {**CHECKS, "names": _names_check(entry)}
            yield from _verdicts("mechanism", name, checks, lambda layer=layer: (layer(), *_examples(1)))
            settings = partial(_layer_settings, entry)
            yield from _verdicts("mechanism", name, {"initial values": check_initial_values}, lambda s=settings: [s()])


def _names_check(entry: Mechanism) -> Callable[..., None]:
    def check(layer: Any, x: torch.Tensor) -> None:
        """Records of explain have the names of the entry."""
        record = layer.explain(x)
        if record.mechanism != entry.name:
            raise BrokenContractError(f"explain returns the mechanism {record.mechanism!r}; expected {entry.name!r}")
        actions = record.details["actions"].shape[-1] if "actions" in record.details else 0
        if actions != len(entry.actions):
            raise BrokenContractError(f"explain returns {actions} actions; the entry has the names {entry.actions}")

    return check


def _cross_layers(loaded: Sequence[Plugin]) -> Iterator[Verdict]:
    for name, entry in _entries(MECHANISMS, loaded):
        if entry.cross_attention is not None:
            layer = partial(_cross_layer, entry)
            yield from _verdicts("cross-attention", name, CROSS_CHECKS, lambda layer=layer: (layer(), *_examples(2)))
            settings, checks = partial(_cross_settings, entry), {"initial values": check_cross_initial_values}
            yield from _verdicts("cross-attention", name, checks, lambda s=settings: [s()])


def _positions(loaded: Sequence[Plugin]) -> Iterator[Verdict]:
    for name, entry in _entries(POSITIONS, loaded):
        settings, d_model = partial(_settings, entry.settings, "kind", name), _NUM_HEADS * _HEAD_SIZE
        if entry.added is not None:
            yield from _verdicts("positions", name, ADDED_CHECKS, partial(_added, entry, settings, d_model))
        if entry.scores is not None:
            yield from _verdicts("positions", name, SCORES_CHECKS, partial(_scores, entry, settings))


def _added(entry: Positions, settings: Callable[[], Settings], d_model: int) -> tuple[Any, int]:
    assert entry.added is not None
    torch.manual_seed(5)
    return entry.added(d_model, settings()), d_model


def _scores(entry: Positions, settings: Callable[[], Settings]) -> tuple[Any, int, int]:
    assert entry.scores is not None
    torch.manual_seed(5)
    return entry.scores(_NUM_HEADS, _HEAD_SIZE, settings()), _NUM_HEADS, _HEAD_SIZE


def _strings(loaded: Sequence[Plugin]) -> Iterator[Verdict]:
    for name, _ in _entries(FORMAL_LANGUAGES, loaded):
        yield from _verdicts("formal language", name, LANGUAGE_CHECKS, lambda name=name: [formal_language(name)])
    for name, entry in _entries(TRANSDUCTIONS, loaded):
        yield from _verdicts("transduction", name, TRANSDUCTION_CHECKS, lambda entry=entry: [entry])


def _tasks(loaded: Sequence[Plugin]) -> Iterator[Verdict]:
    kinds = _entries(TASKS, loaded)
    if not kinds:
        return
    with temporary_folder() as folder:
        prepare_formal_language(folder / "dyck", "dyck", sizes=FormalLanguageSizes(8, 4, 1, (4, 6), (4, 6)))
        for kind_name, kind in kinds:
            yield from _verdicts("task", kind_name, TASK_CHECKS, partial(_task, kind, folder / "dyck"))


def _task(kind: TaskKind, folder: Path) -> tuple[Callable[[], Any], torch.nn.Module]:
    prepared = open_prepared(folder)
    try:
        settings = resolve_settings({"task": kind.name, "data": str(folder), "model": {"kind": kind.models[0]}})
        kind.build(prepared, settings)
    except (DataError, SettingsError) as error:
        raise UsageError(f"task {kind.name!r}: cannot be checked on strings of the Dyck language: {error}") from None
    torch.manual_seed(5)
    model: Any = build_model_for(settings.model, prepared)
    return lambda: kind.build(prepared, settings), model.eval()


def _layer(entry: Mechanism) -> Any:
    """Return a layer with no parameter that is zero."""
    settings = _layer_settings(entry)
    return _randomized(lambda: build_attention(_MODEL, settings, causal=True))


def _layer_settings(entry: Mechanism) -> Settings:
    """Return settings with small numbers for the sizes of the short form."""
    return _settings(entry.settings, "attention", entry.name, entry.sizes)


def _cross_layer(entry: Mechanism) -> Any:
    settings = _cross_settings(entry)
    return _randomized(lambda: build_cross_attention(_MODEL, settings))


def _cross_settings(entry: Mechanism) -> Settings:
    assert entry.cross_attention is not None
    fields = entry.cross_attention.settings.model_fields
    sizes = [size for size in entry.sizes if size in fields]
    return _settings(entry.cross_attention.settings, "attention", entry.name, sizes)


def _settings(cls: type[Settings], field: str, name: str, sizes: Sequence[str] = ()) -> Settings:
    given = {field: name, **{each: size for size, each in enumerate(sizes, start=2)}}
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        raise UsageError(
            f"{name}: the settings of the check, {given}, are refused: {first_problem(error, 'all')}; expected a "
            "default, or a place among the sizes, for each field"
        ) from None


def _randomized(make: Callable[[], Any]) -> Any:
    torch.manual_seed(5)
    layer = make()
    layer.double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.5, 0.5))
    return layer


def _examples(count: int) -> list[torch.Tensor]:
    """Return sequences of 7 positions, and memories of 8 if there are two."""
    generator = torch.Generator().manual_seed(1)
    times = (7, 8)[:count]
    return [torch.randn(3, time, _MODEL.d_model, generator=generator, dtype=torch.float64) for time in times]
