"""The figures that a sweep's settings ask for."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from structattn.explorer.figures import dependency_plot, stack_plot
from structattn.explorer.head_locality import write_locality
from structattn.explorer.recording_files import RecordedRun, read_recorded_run
from structattn.explorer.run_analysis import analyze_run
from structattn.explorer.searched_text import default_examples
from structattn.loading.records import Record
from structattn.loading.runs import open_run
from structattn.report.curves import Curve, Panel, Place, Value, curves_plot
from structattn.report.figure import Plot, figure_style, file_name, new_figure
from structattn.report.runs import Run, read_run
from structattn.report.style import KEEP, line_style
from structattn.runs.folder import RunFolder
from structattn.runs.store import analysis_path, hypotheses_path
from structattn.settings.published import (
    EPOCH,
    LENGTH,
    Curves,
    Dependencies,
    DifferencesByBin,
    Locality,
    StackMaps,
)
from structattn.settings.sweep import SweepSettings, matches
from structattn.support.environment import printable
from structattn.support.grouping import numbered
from structattn.sweeps.comparison import row_score, score_statistics
from structattn.sweeps.outcome import Outcome, TrialResult
from structattn.sweeps.table import TableRow, names_of_score
from structattn.tasks.translation.compare import compare_runs_by_bin
from structattn.tasks.translation.comparison_report import differences_plot
from structattn.tasks.translation.report import heads_of, locality_plot

_logger = logging.getLogger(__name__)
_OfCells = Dependencies | StackMaps | Locality | DifferencesByBin


def sweep_figures(
    sweep: SweepSettings, rows: Sequence[TableRow], results: Sequence[TrialResult], runs: Path, name: str
) -> list[Plot]:
    """Return the figures of a sweep; figures without data are left out, with a warning where run folders are missing.

    ``runs``: the folder of the run folders, which hold records and analyses; it may lack trials with stored
    results. ``name``: of the recipe, a prefix of the file names.
    """
    plots: list[Plot] = []
    for figure in sweep.figures:
        if isinstance(figure, Curves):
            plots += _curves(figure, sweep, rows, results, name)
        else:
            plots += _cell_plots(figure, _with_folder(figure, rows, runs), runs, name)
    names = numbered(plot.name for plot in plots)  # of two figures of one kind, which are two files
    return [replace(plot, name=file_name(each)) for plot, each in zip(plots, names, strict=True)]


def cells_plot(rows: Sequence[TableRow], name: str) -> Plot | None:
    """Plot the validation score of each cell: the mean of its trials with the 95 % interval, and each of them.

    None with successive halving, where the trials that have ended are a selection.
    """
    if not rows or any(row.savings for row in rows):
        return None
    name, shown = file_name(name, "cells"), rows[:_MOST_CELLS]
    with figure_style(name):
        figure = new_figure(7.2, 0.9 + 0.26 * len(shown))
        axes = figure.subplots()
        color = line_style(0).color
        for place, spread in enumerate(row.validation for row in shown):
            axes.plot(spread.numbers, [place + 0.2] * spread.count, ".", color=KEEP, markersize=4)
            axes.errorbar([spread.mean], [place], xerr=[spread.interval or 0.0], color=color, marker="o", capsize=2)
        axes.set_yticks(range(len(shown)), [printable(_label(row)) or "all" for row in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel(names_of_score(shown))
    left_out = f" The first {_MOST_CELLS} of {len(rows)} cells." if len(rows) > _MOST_CELLS else ""
    return Plot(name, figure, _CELLS.format(score=names_of_score(shown)) + left_out)


_MOST_CELLS: Final = 200
_CELLS: Final = (
    "Validation of each cell, {score}: the mean over its trials with the 95 % interval; dots below are the trials."
)


def _with_folder(figure: _OfCells, rows: Sequence[TableRow], runs: Path) -> list[TableRow]:
    """Return the rows whose run folder is there: stored results of trials have neither models nor records."""
    found = [row for row in rows if RunFolder(runs / row.selected).end_event() is not None]
    if lacking := sum(matches(row.cell, figure.cell) and row not in found for row in rows):
        _logger.warning("%s: the figure %s lacks %d cells without run folder", runs, figure.kind, lacking)
    return found


def _cell_plots(figure: _OfCells, rows: Sequence[TableRow], runs: Path, name: str) -> list[Plot]:
    shown = [(row, runs / row.selected) for row in rows if matches(row.cell, figure.cell)]
    if isinstance(figure, Locality):
        return _locality(figure, shown, name)
    if isinstance(figure, DifferencesByBin):
        base = [runs / row.selected for row in rows if row.cell == figure.base]
        translated = [each for each in shown if hypotheses_path(each[1], figure.split).exists()]
        return _differences(figure, base, translated, name)
    explained = [_explained(folder, figure.split, _label(row)) for row, folder in shown]
    if isinstance(figure, StackMaps):
        return [
            stack_plot(record, file_name(name, run.name, place, "stack"), f"{run.name}, {place}. {figure.caption}")
            for run in explained
            for place, record in _stack_records(run, figure.split).items()
        ]
    plot = dependency_plot(explained, file_name(name, figure.kind))
    return [] if plot is None else [replace(plot, caption=figure.caption)]


def _label(row: TableRow) -> str:
    return ", ".join(row.cell.values())


def _explained(folder: Path, split: str, label: str) -> RecordedRun:
    """Read a run folder; without a recording of the split, the first default example is recorded before."""
    if not (folder / "records" / f"{split}.json").exists():
        run = open_run(folder)
        analyze_run(run, split, default_examples(run, split, 1))
    return read_recorded_run(folder, label)


def _located(folder: Path, split: str, label: str) -> Run:
    """Read the run folder of a translation run; the locality of its heads is computed if it was not before."""
    if not analysis_path(folder, f"{split}-attention").exists():
        write_locality(open_run(folder), split)
    return read_run(folder, label)


def _stack_records(run: RecordedRun, split: str) -> dict[str, Record]:
    """Return the place of each stack -> its record on the first example of a split."""
    records: dict[str, Record] = {}
    for example in run.examples:
        for record in example.records:
            if example.split == split and record.actions is not None:
                head = "" if record.head is None else f", head {record.head + 1}"
                records.setdefault(f"{record.side or ''} layer {record.layer + 1}{head}".lstrip(), record)
    return records


def _locality(figure: Locality, shown: Sequence[tuple[TableRow, Path]], name: str) -> list[Plot]:
    runs = [_located(folder, figure.split, _label(row)) for row, folder in shown]
    located = [(run, line_style(number), heads_of(run, figure.split)) for number, run in enumerate(runs)]
    if not (located := [each for each in located if each[2]]):
        return []
    return [replace(locality_plot(located, figure.split, file_name(name, figure.kind)), caption=figure.caption)]


def _differences(
    figure: DifferencesByBin, base: Sequence[Path], shown: Sequence[tuple[TableRow, Path]], name: str
) -> list[Plot]:
    others = [(row, folder) for row, folder in shown if folder not in base]
    if not base or not others:
        return []
    base_label = ", ".join(figure.base.values())
    _located(base[0], figure.split, base_label)
    compared = [
        (
            read_run(folder, _label(row)),
            line_style(number),
            [asdict(each) for each in compare_runs_by_bin(base[0], folder, figure.split)],
        )
        for number, (row, folder) in enumerate(others)
    ]
    plot = differences_plot(compared, base_label, figure.split, file_name(name, "differences", base_label))
    return [replace(plot, caption=figure.caption)]


def _curves(
    figure: Curves, sweep: SweepSettings, rows: Sequence[TableRow], results: Sequence[TrialResult], name: str
) -> list[Plot]:
    panels = _panels(figure, rows, results)
    if not panels:
        return []
    places = None if figure.x_axis in _NUMERIC else list(sweep.grid[figure.x_axis])
    labels = figure.x_axis, figure.score.replace(".", ", ").replace("_", " ")
    return [curves_plot(panels, places, labels, file_name(name, figure.x_axis, figure.score), figure.caption)]


def _panels(figure: Curves, rows: Sequence[TableRow], results: Sequence[TrialResult]) -> list[Panel]:
    """One panel for each value of the panel axis, one curve for each combination of the remaining axes."""
    points: dict[str, dict[str, dict[Place, Value]]] = {}
    behind: dict[tuple[str, str], list[Mapping[Place, Value]]] = {}
    for row in rows:
        of_cell = {each.trial.name: each.outcome for each in results if each.trial.cell == row.cell}
        points_of_row = _points(figure, row, of_cell)
        if points_of_row:
            rest = [value for axis, value in row.cell.items() if axis not in (figure.x_axis, figure.panels)]
            title, label = row.cell.get(figure.panels or "", ""), ", ".join(rest) or figure.score
            points.setdefault(title, {}).setdefault(label, {}).update(points_of_row)
            if figure.x_axis in _NUMERIC:
                others = [outcome for name, outcome in of_cell.items() if name != row.selected]
                drawn = (_NUMERIC[figure.x_axis](figure, outcome) for outcome in others)
                behind[title, label] = [points for points in drawn if points]
    return [
        Panel(title, [Curve(label, shown, behind.get((title, label), ())) for label, shown in curves.items()])
        for title, curves in points.items()
    ]


def _points(figure: Curves, row: TableRow, outcomes: Mapping[str, Outcome]) -> Mapping[Place, Value]:
    if figure.x_axis not in _NUMERIC:
        score = row_score(row, figure)
        return {} if score is None else {row.cell[figure.x_axis]: (score, _interval(figure, row))}
    return _NUMERIC[figure.x_axis](figure, outcomes[row.selected]) if row.selected in outcomes else {}


def _by_length(figure: Curves, outcome: Outcome) -> dict[Place, Value]:
    """The score at each string length; empty if the run has no scores by length."""
    rows: Sequence[Mapping[str, float | None]] = outcome.scores.get(figure.split, {}).get("by_length", [])
    numbers = {row["length"]: row.get(figure.name) for row in rows}
    return {int(length): (value, None) for length, value in numbers.items() if length is not None and value is not None}


def _by_epoch(figure: Curves, outcome: Outcome) -> dict[Place, Value]:
    """The validation score after each epoch: the difference from the lower bound if it is known."""
    keys = ("epoch", "cross_entropy_difference", "cross_entropy")
    scores = ((event[key] for key in keys) for event in outcome.validations)
    return {epoch: (total if difference is None else difference, None) for epoch, difference, total in scores}


_NUMERIC: Final = {LENGTH: _by_length, EPOCH: _by_epoch}


def _interval(figure: Curves, row: TableRow) -> float | None:
    """The interval of the mean over trials; for a single trial that of its own score, as BLEU has one."""
    spread = score_statistics(row, figure)
    if spread is not None and spread.interval is not None and figure.statistic == "mean":
        return spread.interval
    if spread is None or figure.score == "validation" or (spread.count > 1 and figure.statistic != "selected"):
        return None
    return row.splits.get(figure.split, {}).get(f"{figure.name} ±")
