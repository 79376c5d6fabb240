"""``structattn sweep``: train a grid of trials."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from structattn.cli.options import Json
from structattn.cli.output import print_json, print_line
from structattn.support.errors import UsageError

EngineName = Literal["pool", "ray", "slurm"]


def sweep(
    settings: Annotated[
        Path, typer.Argument(metavar="SWEEP", help="Recipe, or YAML file with base, grid and restarts.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the runs and results.")],
    trial_results: Annotated[
        Path | None,
        typer.Option(
            help="File to which each completed trial adds a line with its settings and scores, as "
            "results/RECIPE.trials.jsonl. Trials that have one there are not trained."
        ),
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="Train nothing; verify a run that was trained elsewhere, score it, and show it beside the trials; "
            "repeatable.",
        ),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Local processes, Ray (local or a cluster), or SLURM.")] = "pool",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Trials to run at once.  [default: number of CPUs that it may use; 100 on SLURM]"
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="ray: address of a running cluster; slurm: resources of each job under submitit's names, as "
            "timeout_min=600, mem_gb=1.5 or slurm_partition=short, values as in YAML; repeatable.  "
            "[default: timeout_min=240]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the trials' settings and print their number.")
    ] = False,
    json: Json = False,
) -> None:
    """Train every trial of a grid, evaluate the best of each cell, and print a table of results.

    An interrupted sweep resumes when the same command is run again; completed trials are not repeated.

    Examples:
        structattn sweep sweep.yaml -o runs/sweep
        structattn sweep context_free/small -o runs/context-free
        structattn sweep arena/small -o runs/arena --add runs/mine
        structattn sweep grid.yaml -o runs/g --engine slurm --cluster timeout_min=60
    """
    from structattn.cli.sweep_view import live_view, print_added, print_rows
    from structattn.settings.sweep import load_sweep
    from structattn.support.processes import available_cores
    from structattn.sweeps.added import add_run
    from structattn.sweeps.data_preparation import require_names
    from structattn.sweeps.engines import ProcessPoolEngine, RayEngine, SlurmEngine
    from structattn.sweeps.scheduler import Engine
    from structattn.sweeps.sweep import FailedTrialsError, run_sweep
    from structattn.sweeps.trials import make_trials, require_published

    sweep_settings = load_sweep(settings)
    parameters: dict[str, Any] = dict(map(_parameter, cluster or []))
    if cluster and engine == "pool":
        raise UsageError("--cluster is for --engine ray and slurm, not pool")
    if engine == "ray" and (others := parameters.keys() - {"address"}):
        raise UsageError(f"--cluster {min(others)}: expected address=... for --engine ray")
    if own := parameters.keys() & {"self", "max_jobs", "logs"}:
        raise UsageError(f"--cluster {min(own)}: expected a parameter of submitit, as timeout_min=600")
    if add and (dry_run or trial_results or workers or engine != "pool"):
        raise UsageError(
            "--add scores runs; expected none of --dry-run, --trial-results, --workers and --engine with it"
        )
    address = str(parameters["address"]) if engine == "ray" and parameters else None
    if dry_run:
        trials = make_trials(sweep_settings, output.absolute())
        require_published(sweep_settings)
        require_names(trials)
        if json:
            print_json({"trials": len(trials)})
        else:
            print_line(f"{settings}: {len(trials)} trials, all settings are valid; data are not looked at")
        return

    if add:
        added = [add_run(sweep_settings, output, run) for run in add]
        print_json(added) if json else print_added(added)
        return

    def open_engine() -> Engine:
        if engine == "ray":
            return RayEngine(workers or (None if address else available_cores()), address)
        if engine == "slurm":
            return SlurmEngine(workers or 100, output / "slurm", **parameters)
        return ProcessPoolEngine(workers or available_cores())

    failure: FailedTrialsError | None = None
    with live_view() as show:
        try:
            rows = run_sweep(sweep_settings, output, open_engine, show, trial_results)
        except FailedTrialsError as error:
            rows, failure = list(error.rows), error
    if json:
        print_json(rows)
    elif rows:
        print_rows(rows)
    if failure is not None:
        raise failure
    print_line(f"{output / 'table.json'}", error=json)


def _parameter(assignment: str) -> tuple[str, bool | float | str]:
    """Parse NAME=VALUE, the value as a number, boolean or text of YAML.

    What YAML reads as an integer in another base, such as the time 1:30:00 or the account 007, is text.
    """
    from structattn.settings.yaml import parse_yaml

    name, separator, text = assignment.partition("=")
    if not separator or not name.isidentifier():
        raise UsageError(f"--cluster {assignment!r}: expected NAME=VALUE")
    try:
        value = parse_yaml(text)
    except ValueError:  # not YAML, as *
        return name, text
    is_plain = isinstance(value, bool | float | str) or (isinstance(value, int) and str(value) == text)
    return name, value if is_plain and ":" not in text else text
