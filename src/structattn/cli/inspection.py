"""``structattn inspect``: what a run folder says about its run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.options import Json
from structattn.cli.output import literal, print_json, print_table

if TYPE_CHECKING:
    from structattn.loading.inspection import Inspection


def inspect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    json: Json = False,
) -> None:
    """Show how runs ended, their settings that differ from the defaults, scores, sizes and data.

    A run may still be in progress, and its data need not be there.
    """
    from structattn.loading.inspection import inspect_run

    found = [inspect_run(run) for run in runs]
    if json:
        print_json(found)
        return
    for each in found:
        _print(each)


def _print(found: "Inspection") -> None:
    from rich.table import Table

    table = Table(title=literal(str(found.run)), title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    sections = {
        "run": _summary(found),
        "settings that differ from the defaults": found.settings,
        "parameters": {"all": f"{found.parameters:,}"}
        | {f"  {name}": f"{count:,}" for name, count in (found.parts or {}).items()},
        "data": _data(found.data),
        "scores": {
            f"{split} {name}": f"{value:.4f}"
            for split, scores in found.scores.items()
            for name, value in scores.items()
        }
        or {"none": "see structattn evaluate"},
    }
    for heading, rows in sections.items():
        table.add_row(literal(heading), "", style="bold")
        for index, (name, value) in enumerate(rows.items(), start=1):
            table.add_row(literal(f"  {name}"), literal(str(value)), end_section=index == len(rows))
    print_table(table)


def _summary(found: "Inspection") -> dict[str, str]:
    ended = f"{found.ended}, after {found.update:,} updates and {found.epoch} epochs" if found.ended else "not ended"
    if not found.ended and found.checkpoints:
        ended += f"; its newest checkpoint is that of update {found.update:,}"
    return {
        "task, model": f"{found.task}, {found.model}",
        "ended": ended,
        "best validation": "unknown" if found.best_update is None else f"after update {found.best_update:,}",
        "time": "unknown" if found.seconds is None else f"{found.seconds:,.0f} s on {found.device}",
        "checkpoints": ", ".join(map(str, found.checkpoints)) or "none",
        "version": found.version,
    }


def _scores(scores: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    return {f"{split} {name}": f"{value:.4f}" for split, found in scores.items() for name, value in found.items()}


def _data(data: Mapping[str, Any]) -> dict[str, str]:
    splits = {
        f"  {name}": f"{counts['sequences']:,} sequences, {counts['tokens']:,} tokens"
        for name, counts in data.get("splits", {}).items()
    }
    sources = {f"  {path}": f"SHA-256 {digest}" for path, digest in data.get("sources", {}).items()}
    state = {"state": data["state"]} if "state" in data else {}
    return {"path": data["path"], "kind": data["kind"], "digest": data["digest"]} | state | splits | sources
