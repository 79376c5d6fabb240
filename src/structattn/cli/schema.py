"""``structattn schema``: print the JSON Schema of settings."""

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """The kind of settings file."""

    run = "run"
    sweep = "sweep"


def schema(kind: Annotated[Kind, typer.Argument(help="Settings of a run or of a sweep.")] = Kind.run) -> None:
    """Print the JSON Schema of settings, for use in editors."""
    import json

    from structattn.settings.run import RunSettings
    from structattn.settings.sweep import SweepSettings

    settings = RunSettings if kind is Kind.run else SweepSettings
    print(json.dumps(settings.model_json_schema(), indent=2, ensure_ascii=False))
