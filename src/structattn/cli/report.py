"""``structattn report``: run folders to one self-contained page; a sweep beside what was published."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; with --recipe, the folder of its sweep.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder of the report; with --recipe, a JSON file.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A sweep's YAML file: show published numbers and claims beside its results.")
    ] = None,
) -> None:
    """Compare runs on one HTML page that needs no network, with its figures as PNG and PDF beside it.

    With --recipe, print what a sweep came to: published value, ours, interval, and whether one lies inside the other.
    """
    if recipe is not None:
        _report_recipe(recipe, runs, output)
        return
    from structattn.reporting import write_report
    from structattn.support.errors import UsageError

    if output is None:
        raise UsageError("--output is missing: the folder of the report")
    typer.echo(str(write_report(runs, output)))


def _report_recipe(recipe: Path, folders: list[Path], output: Path | None) -> None:
    from structattn.cli.recipe_view import print_claims, print_comparisons
    from structattn.cli.sweep_view import print_rows
    from structattn.settings.sweep import load_sweep
    from structattn.support.errors import UsageError
    from structattn.sweeps.results import read_sweep_results, write_sweep_results

    if len(folders) != 1:
        raise UsageError(f"--recipe goes with one folder, that of its sweep; got {len(folders)}")
    sweep = load_sweep(recipe)
    results = read_sweep_results(sweep, folders[0])
    print_rows(results.rows)
    print_comparisons(results.comparisons)
    print_claims(results.claims)
    typer.echo(f"{len(results.ended)} of {results.trials} trials have ended")
    if output is not None:
        write_sweep_results(output, recipe, sweep, results)
        typer.echo(str(output))
