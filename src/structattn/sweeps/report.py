"""The results of a sweep as one JSON file, and as one self-contained HTML page, with figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from structattn.report.figure import figure_element, write_files
from structattn.report.page import (
    MISSING,
    SIGNATURE,
    Markup,
    create_report_folder,
    joined,
    number_cell,
    page_text,
    short,
    stacked_table,
    tag,
)
from structattn.settings.sweep import SweepSettings, read_sweep
from structattn.support import __version__
from structattn.support.environment import name_of
from structattn.support.files import create_folder, write_atomically
from structattn.support.grouping import grouped
from structattn.sweeps.added import AddedRun
from structattn.sweeps.comparison import ClaimResult, PublishedComparison
from structattn.sweeps.figures import cells_plot, sweep_figures
from structattn.sweeps.results import SweepResults, read_sweep_results
from structattn.sweeps.table import RungStatistics, TableRow, TrialTraining, describe_savings, names_of_score
from structattn.sweeps.worker import SweepFolder


def write_sweep_results(path: str | PathLike[str], command: str, sweep: SweepSettings, results: SweepResults) -> None:
    """Write the results with their settings, seeds and package version as one JSON file.

    The figures of the recipe are written to the same folder as PNG and PDF.
    """
    path = Path(path)
    figures = sweep_figures(sweep, results.rows, results.ended, results.runs, path.stem)
    create_folder(path.parent)
    for figure in figures:
        write_files(figure, path.parent)
    content = {
        "command": command,
        "version": __version__,
        "trials_ended": len(results.ended),
        "trials": results.trials,
        "rows": [asdict(row) for row in results.rows],
        "signatures": list(results.signatures),
        "comparisons": [asdict(comparison) for comparison in results.comparisons],
        "claims": [_claim_json(claim) for claim in results.claims],
        "figures": [{"name": figure.name, "caption": figure.caption} for figure in figures],
        "runs": [
            {
                "name": result.trial.name,
                "cell": result.trial.cell,
                "seed": result.trial.settings.seed,
                "sampled": result.trial.sampled,
                "score": result.score,
                "update": result.update,
            }
            for result in results.ended
        ],
        "added": [asdict(each) for each in results.added],
        "settings": sweep.model_dump(mode="json", exclude_defaults=True, exclude={"published", "claims", "figures"}),
    }
    # A path in the command may not be UTF-8.
    write_atomically(path, json_by_elements(content).encode(errors="backslashreplace"))


def _claim_json(claim: ClaimResult) -> dict[str, Any]:
    """Return the fields of a claim; cells without the score are known by their null."""
    return {name: value for name, value in asdict(claim).items() if name != "missing"}


def json_by_elements(content: Mapping[str, Any]) -> str:
    """Return an object as JSON with a line for each value, and for each element of a list: a line of a difference."""
    fields = [f"{_json(name)}: {_json_value(value)}" for name, value in content.items()]
    return "{\n " + ",\n ".join(fields) + "\n}\n"


def _json_value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(map(_json, value)) + "\n ]"
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_NOTE = (
    "Validation: {score}. Mean, standard deviation and half the 95 % interval are over the trials of a cell; scores on "
    "splits are those of its best trial."
)


def write_sweep_page(folder: Path, output: Path, trial_results: Path | None = None) -> Path:
    """Write a report on a sweep to ``output/index.html`` and ``output/figures/``; return the path of the page.

    Without figures in its settings, or data for them, it has one of the validation scores of all cells.

    Args:
        folder: the sweep's folder; some trials may not have ended.
        output: the folder to write, created if missing; an earlier report in it is overwritten.
        trial_results: the file of trials, for those without a run folder.

    Raises:
        StructattnError: no trial has ended, a file is damaged, or ``output`` has other files.
    """
    settings = SweepFolder(folder).settings
    sweep = read_sweep(settings)
    results = read_sweep_results(sweep, folder, trial_results)
    figures = create_report_folder(output)
    name = name_of(folder)
    plots = sweep_figures(sweep, results.rows, results.ended, results.runs, name)
    if not plots and (cells := cells_plot(results.rows, name)) is not None:
        plots = [cells]
    title = f"Sweep: {name}"
    counts, note = f"{results.counts}, {SIGNATURE}", _NOTE.format(score=names_of_score(results.rows))
    body = joined(
        tag("header", tag("h1", title), tag("p", counts, class_="note")),
        tag("section", tag("h2", "Results"), _results(results), tag("p", note, class_="note")),
        _added(results.added),
        _halving(results.rows),
        *[figure_element(plot, figures) for plot in plots],
        _comparisons(results.comparisons),
        _claims(results.claims),
        tag("details", tag("summary", "sweep.yaml"), tag("pre", settings.read_text("utf-8")), class_="card"),
    )
    page = output / "index.html"
    write_atomically(page, page_text(title, body))
    return page


def _results(results: SweepResults) -> Markup:
    """Return a table with a row for each cell of the grid."""
    rows = results.rows
    paths = list(dict.fromkeys(path for row in rows for path, _ in _scores(row)))
    # Trials that remain after halving were selected by this score: the rungs have the statistics over all trials.
    halved = any(row.savings for row in rows)
    headings = [_cell_heading(rows[0].cell), "trials", "best", *(() if halved else ("mean", "std", "±95 %"))]
    written = []
    for row in rows:
        spread, scores = row.validation, dict(_scores(row))
        statistics = () if halved else (spread.mean, spread.deviation, spread.interval)
        texts = [row.ended, *map(short, (row.best, *statistics)), *[scores.get(path, MISSING) for path in paths]]
        written.append([_cell(row.cell), *map(number_cell, texts)])
    for cell, count in results.without_scores:
        missing = [MISSING] * (len(headings) + len(paths) - 2)
        written.append([_cell(cell), *map(number_cell, (f"0 of {count}", *missing))])
    return stacked_table([*headings, *paths], written)


def _added(added: Sequence[AddedRun]) -> Markup:
    """Return a table of the runs that were trained elsewhere; nothing without them."""
    if not added:
        return Markup("")
    paths = list(dict.fromkeys(path for each in added for path, _ in _scores(each)))
    written = []
    for each in added:
        scores = dict(_scores(each))
        texts = [", ".join(each.cell.values()), str(each.seed), f"{each.parameters:,}"]
        texts += [scores.get(path, MISSING) for path in paths]
        written.append([tag("th", each.name, scope="row"), *map(number_cell, texts)])
    note = "Trained elsewhere, with settings and data of this sweep, and scored by this version."
    return tag(
        "section",
        tag("h2", "Added runs"),
        stacked_table(["run", _cell_heading(added[0].cell), "seed", "parameters", *paths], written),
        tag("p", note, class_="note"),
    )


def _halving(rows: Sequence[TableRow]) -> Markup:
    """Return tables of the comparisons at the rungs and of the training of each trial; nothing without halving."""
    halved = [(row.cell, row.savings) for row in rows if row.savings is not None]
    if not halved:
        return Markup("")
    heading, unit = _cell_heading(halved[0][0]), halved[0][1].unit
    rungs = [[_cell(cell), *_rung(rung)] for cell, savings in halved for rung in savings.rungs]
    trials = [[_cell(cell), *_training(trial)] for cell, savings in halved for trial in savings.trials]
    by_trial = stacked_table([heading, "trial", f"{unit} of training", "", "best"], trials)
    return tag(
        "section",
        tag("h2", "Successive halving"),
        tag("p", describe_savings([savings for _, savings in halved])),
        stacked_table([heading, f"after {unit}", "trials", "best", "mean", "std", "±95 %"], rungs),
        tag("details", tag("summary", "Training of each trial"), by_trial),
    )


def _rung(rung: RungStatistics) -> list[Markup]:
    spread = rung.validation
    numbers = (spread.min, spread.mean, spread.deviation, spread.interval)
    return [number_cell(text) for text in (str(rung.after), str(spread.count), *map(short, numbers))]


def _training(trial: TrialTraining) -> list[Markup]:
    end = "stopped" if trial.stopped else "ended"
    return [number_cell(text) for text in (str(trial.restart), str(trial.trained), end, short(trial.score))]


def _scores(row: TableRow | AddedRun) -> list[tuple[str, str]]:
    """Return the main scores of the selected trial, or of an added run, as (split and score, number)."""
    return [
        (f"{split}, {name.replace('_', ' ')}", short(value))
        for split, scores in row.splits.items()
        for name, value in scores.items()
        if name not in ("lower_bound", "cross_entropy")
    ]


def _comparisons(comparisons: Sequence[PublishedComparison]) -> Markup:
    parts = []
    for source, chosen in grouped(comparisons, lambda each: each.source).items():
        notes = list(dict.fromkeys("; ".join(each.differences) for each in chosen if each.differences))
        headings = [_cell_heading(chosen[0].cell), "published", "ours", "±95 %", "trials", "published is"]
        rows = []
        for each in chosen:
            *numbers, verdict = each.texts
            if each.differences:
                verdict = f"of another configuration ({notes.index('; '.join(each.differences)) + 1})"
            rows.append([_cell(each.cell), *map(number_cell, (*numbers, verdict))])
        listed = [tag("p", f"({place}) {note}", class_="note") for place, note in enumerate(notes, start=1)]
        parts.append(joined(tag("h3", source), stacked_table(headings, rows), *listed))
    return tag("section", tag("h2", "Published numbers"), *parts) if parts else Markup("")


def _claims(claims: Sequence[ClaimResult]) -> Markup:
    if not claims:
        return Markup("")
    headings = ["claim", _cell_heading(claims[0].cell), "ours", "compared with", "difference", "it"]
    rows = []
    for each in claims:
        texts = (", ".join(each.cell.values()), *each.texts)
        rows.append([tag("th", each.description, scope="row"), *map(number_cell, texts)])
    return tag("section", tag("h2", "Claims"), stacked_table(headings, rows))


def _cell_heading(cell: Mapping[str, str]) -> str:
    return ", ".join(cell) or "cell"


def _cell(cell: Mapping[str, str]) -> Markup:
    return tag("th", ", ".join(cell.values()) or "all", scope="row")
