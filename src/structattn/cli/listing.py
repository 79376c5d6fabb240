"""``structattn list``: everything that can be chosen by name, and the JSON Schema of settings."""

import json as json_format
import sys
from collections.abc import Mapping
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from structattn.cli.options import Json
from structattn.cli.output import print_json, print_table
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.support.plugins import Plugin

SettingsKind = Literal["run", "sweep"]


def _discriminated(union: Any, field: str) -> dict[str, str]:
    """Return the kinds of a union of settings, each with the first line of its docstring."""
    from structattn.settings.base import literal_of, members_of

    return {literal_of(member, field): _first_line(member) for member in members_of(union)}


def _with_origin(names: Mapping[str, str], plugins: "Mapping[str, Plugin]") -> dict[str, str]:
    """Add the plugin, and where it lies, to the description of what it has registered."""
    return {
        name: f"{line} ({plugins[name].path or plugins[name].name})".lstrip() if name in plugins else line
        for name, line in names.items()
    }


def _first_line(documented: object) -> str:
    return (getdoc(documented) or "").split("\n", maxsplit=1)[0].replace("``", "")


def choices() -> dict[str, Mapping[str, str]]:
    """Return all names that settings and commands accept: heading -> name -> description."""
    from structattn.settings.embeddings import POSITIONS, PositionSettings
    from structattn.settings.layers import AddedStack, CrossAttention, Layer
    from structattn.settings.mechanisms import MECHANISMS
    from structattn.settings.models import ModelSettings
    from structattn.settings.optimizers import Optimizer, Schedule
    from structattn.settings.recipes import recipes
    from structattn.settings.recurrent import RecurrentStackSettings
    from structattn.settings.run import TASK_DESCRIPTIONS, TRANSFORMATION_DESCRIPTIONS
    from structattn.settings.training import Batches
    from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES
    from structattn.tasks.recognition.registry import FLARE_LANGUAGES, recognition_descriptions
    from structattn.tasks.transductions.registry import TRANSDUCTIONS

    def mechanisms(union: Any) -> dict[str, str]:
        return _with_origin(_discriminated(union, "attention"), MECHANISMS.plugins)

    of_plugins = {name: each for name, each in FORMAL_LANGUAGES.plugins.items() if name not in FLARE_LANGUAGES}
    transductions = {task.name: task.description for task in TRANSDUCTIONS.values()}
    return {
        "models (model.kind)": _discriminated(ModelSettings, "kind"),
        "mechanisms (model.layers)": mechanisms(Layer),
        "stacks added to a layer (stack in model.layers)": mechanisms(AddedStack),
        "cross-attention (model.decoder.cross_attention)": mechanisms(CrossAttention),
        "stacks of recurrent models (model.stack)": mechanisms(RecurrentStackSettings),
        "positions (model.positions)": _with_origin(_discriminated(PositionSettings, "kind"), POSITIONS.plugins),
        "tasks (task)": _with_origin(TASK_DESCRIPTIONS, TASK_DESCRIPTIONS.plugins),
        "batches (training.batches.kind)": _discriminated(Batches, "kind"),
        "optimizers (training.optimizer.kind)": _discriminated(Optimizer, "kind"),
        "schedules (training.schedule.kind)": _discriminated(Schedule, "kind"),
        "formal languages (prepare formal-language)": {
            **_with_origin(FORMAL_LANGUAGES, FORMAL_LANGUAGES.plugins),
            "FILE.cfg": "your own grammar, such as S -> a S b [0.4] | a b [0.6]",
            "FILE.fsa": "your own finite automaton, with a line such as q0 a q1 [0.5] for each transition",
            "FILE.regex": "your own regular expression, such as (a b)* c",
        },
        "transductions (prepare transduction)": {
            **_with_origin(transductions, TRANSDUCTIONS.plugins),
            "recognise:LANGUAGE:EDITS": "whether a string is in a formal language; negative examples have EDITS edits",
            "complete:LANGUAGE": "how a string continues after its first word",
        },
        "languages to recognize (prepare recognition)": {
            **_with_origin(recognition_descriptions(), of_plugins),
            "FILE.cfg, FILE.fsa, FILE.regex": "your own language, as for formal languages",
        },
        "transformations (prepare transformation)": TRANSFORMATION_DESCRIPTIONS,
        "recipes (train, sweep)": recipes(),
    }


def show_list(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Only names of this kind: a heading, as recipes.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="After `recipes`: print this recipe, to change a copy.")
    ] = None,
    schema: Annotated[
        SettingsKind | None, typer.Option(help="Print the JSON Schema of settings instead, for editors.")
    ] = None,
    json: Json = False,
) -> None:
    """List models, mechanisms, positions, tasks, batches, optimizers, schedules, formal languages, recipes and so on.

    Examples:
        structattn list
        structattn list recipes
        structattn list recipes text > own.yaml
        structattn list --schema run > run.schema.json
    """
    if schema is not None:
        if kind is not None:
            raise UsageError(f"{kind}: --schema prints the schema of all settings; expected no names")
        from structattn.settings.run import RunSettings
        from structattn.settings.sweep import SweepSettings

        settings = RunSettings if schema == "run" else SweepSettings
        sys.stdout.write(json_format.dumps(settings.model_json_schema(), indent=2, ensure_ascii=False) + "\n")
        return
    shown = {heading: names for heading, names in choices().items() if heading.startswith(kind or "")}
    if not shown:
        headings = sorted({heading.partition(" (")[0] for heading in choices()})
        raise UsageError(f"{kind}: expected one of {', '.join(headings)}")
    if recipe is not None:
        if json:
            raise UsageError(f"{recipe}: a recipe is printed as YAML; expected no --json")
        _print_recipe(kind, recipe)
    elif json:
        print_json(shown)
    else:
        _print_tables(shown)


def _print_recipe(kind: str | None, recipe: str) -> None:
    from structattn.settings.recipes import settings_file

    if kind != "recipes":
        raise UsageError(f"{recipe}: only recipes are printed; expected `structattn list recipes {recipe}`")
    sys.stdout.write(settings_file(recipe).read_text("utf-8"))


def _print_tables(shown: Mapping[str, Mapping[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for heading, entries in shown.items():
        table = Table.grid(padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True)
        for name, line in entries.items():
            table.add_row(Text(name, style="bold"), Text(line))
        Console().print(Text(heading, style="underline"))
        print_table(table)
        Console().print()
