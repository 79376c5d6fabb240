"""``structattn sweep``: a grid of trials to a table."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class EngineName(StrEnum):
    """Where trials run."""

    pool = "pool"
    ray = "ray"
    slurm = "slurm"


def sweep(
    settings: Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="A YAML file with base, grid, restarts.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The sweep's folder.")],
    engine: Annotated[
        EngineName, typer.Option(help="Processes here, Ray (here or a cluster), or SLURM.")
    ] = EngineName.pool,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trials at once; by default one for each processor.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that is running.")] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What is asked of SLURM for each trial, as submitit names it, repeatable: timeout_min=600, "
            "slurm_partition=short. [default: timeout_min=240]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all trials, show how many, train none.")] = False,
) -> None:
    """Train every trial of a grid, show one live table, and end in the table of the selected.

    What was killed goes on when the same command is run again; trials that have ended are not repeated.
    """
    from structattn.cli.sweep_view import live_view, print_rows
    from structattn.settings.sweep import load_sweep
    from structattn.support.errors import UsageError
    from structattn.sweeps.engine import Engine
    from structattn.sweeps.pool import Pool
    from structattn.sweeps.ray_engine import RayEngine
    from structattn.sweeps.slurm_engine import SlurmEngine
    from structattn.sweeps.sweep import run_sweep
    from structattn.sweeps.trials import trials_of

    wanted = load_sweep(settings)
    if address and engine is not EngineName.ray:
        raise UsageError(f"--address belongs to --engine ray, not to {engine.value}")
    if cluster and engine is not EngineName.slurm:
        raise UsageError(f"--cluster belongs to --engine slurm, not to {engine.value}")
    parameters: dict[str, Any] = dict(map(_parameter, cluster or []))
    if dry_run:
        trials = trials_of(wanted, output.absolute())
        typer.echo(f"{settings}: {len(trials)} trials, all of whose settings fit")
        return

    def opened() -> Engine:
        if engine is EngineName.ray:
            return RayEngine(workers or (None if address else os.cpu_count()), address)
        if engine is EngineName.slurm:
            return SlurmEngine(workers or 100, output / "slurm", **parameters)
        return Pool(workers or os.cpu_count() or 1)

    with live_view() as watch:
        rows = run_sweep(wanted, output, opened, watch)
    print_rows(rows)
    typer.echo(f"{output / 'table.json'}")


def _parameter(assignment: str) -> tuple[str, int | str]:
    """NAME=VALUE; whole numbers are such."""
    from structattn.support.errors import UsageError

    name, separator, value = assignment.partition("=")
    if not separator or not name.isidentifier():
        raise UsageError(f"--cluster {assignment!r}: expected NAME=VALUE")
    return name, int(value) if value.isdecimal() else value
