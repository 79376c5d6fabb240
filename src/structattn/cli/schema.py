"""``structattn schema``: the JSON Schema of settings."""

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What a file describes."""

    run = "run"
    sweep = "sweep"


def schema(kind: Annotated[Kind, typer.Argument(help="Of one run's settings, or of a sweep's.")] = Kind.run) -> None:
    """Print the JSON Schema of settings, for editors."""
    import json

    from structattn.settings.run import RunSettings
    from structattn.settings.sweep import SweepSettings

    settings = RunSettings if kind is Kind.run else SweepSettings
    print(json.dumps(settings.model_json_schema(), indent=2, ensure_ascii=False))
