"""The report: one self-contained HTML page, with its figures as PNG and PDF files beside it."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from structattn.reporting.against_base import comparison_sections
from structattn.reporting.cards import run_card
from structattn.reporting.contrastive import contrastive_sections
from structattn.reporting.explanations import explanations
from structattn.reporting.fields import dependency_plot
from structattn.reporting.figures import Plot, file_name, finished
from structattn.reporting.learning_curves import learning_plot
from structattn.reporting.length_curves import length_plot
from structattn.reporting.locality import locality_section
from structattn.reporting.markup import Markup, joined, tag
from structattn.reporting.palette import Look, look
from structattn.reporting.runs import Run, read_runs
from structattn.reporting.tables import shown_split, summary_table
from structattn.support.errors import StructattnError
from structattn.support.files import write_atomically

_SIGNATURE = "made with structattn"

Shown = Sequence[tuple[Run, Look]]


def _by_data(runs: Shown) -> dict[str, list[tuple[Run, Look]]]:
    groups: dict[str, list[tuple[Run, Look]]] = {}
    for run, its_look in runs:
        groups.setdefault(run.data_name, []).append((run, its_look))
    return groups


def _plots(runs: Shown, prefix: str) -> list[Plot]:
    by_length = shown_split([run for run, _ in runs])
    plots = [length_plot(runs, by_length, file_name(prefix, by_length, "by-length"))]
    plots.append(learning_plot(runs, file_name(prefix, "learning")))
    plots.append(dependency_plot([run for run, _ in runs], file_name(prefix, "dependencies")))
    return [plot for plot in plots if plot is not None]


def _group(title: str, runs: Shown, prefix: str, figures: Path) -> Markup:
    parts = [tag("h2", title), summary_table(runs)]
    parts += [finished(plot, figures) for plot in _plots(runs, prefix)]
    parts.append(comparison_sections(runs, prefix, figures))
    parts.append(contrastive_sections(runs, prefix, figures))
    parts.append(locality_section(runs, shown_split([run for run, _ in runs]), prefix, figures))
    return tag("section", *parts)


def _readings(runs: Shown, figures: Path) -> Markup:
    parts = [
        explanations(run, its_look, file_name(f"run-{number}", run.name), figures)
        for number, (run, its_look) in enumerate(runs, start=1)
    ]
    found = [part for part in parts if part]
    return tag("section", tag("h2", "What the layers did"), *found) if found else Markup("")


def _cards(runs: Shown) -> Markup:
    return tag("section", tag("h2", "Run cards"), *[run_card(run, its_look) for run, its_look in runs])


def _page(title: str, body: Markup) -> str:
    style = Markup(files("structattn.reporting").joinpath("page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", style),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", body)), lang="en") + "\n"


def _require_own(output: Path) -> None:
    """Refuse a folder with other people's files in it, unless an earlier report is there."""
    page = output / "index.html"
    if page.is_file() and _SIGNATURE in page.read_text(encoding="utf-8", errors="replace"):
        return
    found = sorted(entry.name for entry in output.iterdir()) if output.is_dir() else []
    if found or (output.exists() and not output.is_dir()):
        raise StructattnError(
            f"{output}: expected a new folder, or one with an earlier report; found {(found or ['a file'])[0]!r}"
        )


def write_report(folders: Sequence[Path], output: Path) -> Path:
    """Write ``output/index.html`` and ``output/figures/`` about run folders and give the page's path.

    The page needs no network and no other file. Equal run folders give equal bytes.

    Args:
        folders: run folders; what one lacks (scores, records, events) is left out of the page.
        output: a folder, made if missing; figures of an earlier report in it are replaced where names agree.

    Raises:
        StructattnError: a folder is no run folder, or a file in one is damaged; or ``output`` holds something else.
    """
    _require_own(output)
    runs = [(run, look(index)) for index, run in enumerate(read_runs(folders))]
    figures = output / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    groups = _by_data(runs)
    title = "Report: " + ", ".join(groups)
    number = f"{len(runs)} run" + ("s" if len(runs) > 1 else "")
    parts = [tag("header", tag("h1", title), tag("p", f"{number}, {_SIGNATURE}", class_="note"))]
    for index, (name, members) in enumerate(groups.items(), start=1):
        heading = name if len(groups) > 1 else "Scores"
        parts.append(_group(heading, members, f"data-{index}", figures))
    body = joined(*parts, _readings(runs, figures), _cards(runs))
    page = output / "index.html"
    write_atomically(page, _page(title, body))
    return page
