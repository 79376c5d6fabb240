"""``structattn report``: write a report of runs as an HTML page, or compare a sweep with published numbers."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.options import check_output_files
from structattn.cli.output import print_json, print_line
from structattn.support.errors import UsageError
from structattn.support.imports import require_modules


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or the folder of a sweep.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the report; with --recipe, a file, NAME.json.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="A sweep recipe or YAML file: compare its results with published numbers and claims."),
    ] = None,
    trial_results: Annotated[
        Path | None, typer.Option(help="For a sweep: the file given to `sweep --trial-results`.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="With --recipe: write one JSON document in place of tables.")
    ] = False,
) -> None:
    """Write a self-contained HTML page that compares runs or shows a sweep, with its figures as PNG and PDF files.

    With --recipe, compare the results of a sweep with published numbers, and print whether these are in our intervals.

    Examples:
        structattn report runs/stack runs/plain --output report
        structattn report runs/sweep --recipe hybrid_translation/small -o small.json
    """
    if recipe is not None:
        _report_recipe(recipe, runs, output, trial_results, json)
        return
    if json:
        raise UsageError("--json needs --recipe; a report is an HTML page")
    if output is None:
        raise UsageError("--output is missing; expected the folder of the report")
    if output.suffix == ".json":
        raise UsageError(f"--output {output}: a report is a folder; --recipe writes a JSON file")
    from structattn.report.page import require_report_folder

    require_report_folder(output)
    require_modules("plot", "matplotlib")
    from structattn.cli.report_page import write_report
    from structattn.sweeps.report import write_sweep_page
    from structattn.sweeps.results import is_sweep

    if len(runs) == 1 and is_sweep(runs[0]):
        print_line(str(write_sweep_page(runs[0], output, trial_results)))
        return
    if trial_results is not None:
        raise UsageError("--trial-results is for sweeps; expected the folder of a sweep")
    print_line(str(write_report(runs, output)))


def _report_recipe(
    recipe: str, folders: list[Path], output: Path | None, trial_results: Path | None, json: bool
) -> None:
    from structattn.cli.sweep_view import print_added, print_claims, print_comparisons, print_rows
    from structattn.settings.sweep import load_sweep
    from structattn.sweeps.results import read_sweep_results

    if len(folders) != 1:
        raise UsageError(f"--recipe expects one folder, that of the sweep; got {len(folders)}")
    check_output_files({"--output": output}, {"--recipe": Path(recipe), "--trial-results": trial_results})
    # Devices and pipes have any name.
    if output is not None and output.suffix != ".json" and (output.is_file() or not output.exists()):
        raise UsageError(f"--output {output}: with --recipe it is a file; expected a name that ends in .json")
    sweep = load_sweep(recipe)
    results = read_sweep_results(sweep, folders[0], trial_results)
    if output is not None:
        require_modules("plot", "matplotlib")
        from structattn.sweeps.report import write_sweep_results

        stored = [] if trial_results is None else ["--trial-results", str(trial_results)]
        command = shlex.join(["structattn", "sweep", recipe, "--output", str(folders[0]), *stored])
        write_sweep_results(output, command, sweep, results)
    if json:
        print_json(results)
        return
    print_rows(results.rows)
    print_added(results.added)
    print_comparisons(results.comparisons)
    print_claims(results.claims)
    print_line(results.counts)
    if output is not None:
        print_line(str(output))
