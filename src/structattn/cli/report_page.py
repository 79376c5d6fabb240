"""Write a report: one self-contained HTML page, with its figures also as PNG and PDF files."""

from collections.abc import Sequence
from pathlib import Path

from structattn.explorer.ablation_report import ablation_section
from structattn.explorer.figures import dependency_plot, explanations
from structattn.explorer.recording_files import RecordedRun, read_recorded_runs
from structattn.extraction.report import extraction_section
from structattn.report.curves import learning_curve_plots, length_curve_plot
from structattn.report.figure import figure_element, file_name
from structattn.report.page import SIGNATURE, Markup, create_report_folder, flattened, joined, page_text, tag
from structattn.report.runs import Run, shortest_names
from structattn.report.style import MOST_DRAWN, LineStyle, first_drawn, line_style
from structattn.report.tables import different_ends, main_split, summary_tables, swatch, worse_than_baselines
from structattn.support.files import write_atomically
from structattn.support.grouping import grouped
from structattn.tasks.chunking.report import chunking_sections
from structattn.tasks.language_modeling.report import likelihood_sections
from structattn.tasks.minimal_pairs.report import blimp_section
from structattn.tasks.parsing.report import parsing_sections
from structattn.tasks.recognition.report import recognition_sections
from structattn.tasks.syntaxgym.report import syntaxgym_section
from structattn.tasks.transformations.report import transformation_sections
from structattn.tasks.translation.comparison_report import comparison_sections
from structattn.tasks.translation.contrastive_report import contrastive_sections
from structattn.tasks.translation.report import locality_section, translation_section

Shown = Sequence[tuple[RecordedRun, LineStyle]]


def _figures(runs: Shown, split: str, prefix: str, figures: Path) -> Markup:
    runs = first_drawn(runs)
    by_length = length_curve_plot(runs, split, file_name(prefix, split, "by-length"))
    learning = learning_curve_plots(runs, file_name(prefix, "learning"))
    dependencies = dependency_plot([run for run, _ in runs], file_name(prefix, "dependencies"))
    panels = tag("div", *[figure_element(plot, figures) for plot in learning], class_="panels")
    drawn = ["" if plot is None else figure_element(plot, figures) for plot in (by_length, dependencies)]
    return joined(drawn[0], panels if learning else "", drawn[1])


def _group(title: str, runs: Shown, prefix: str, figures: Path) -> Markup:
    split = main_split([run for run, _ in runs])
    return tag(
        "section",
        tag("h2", title),
        summary_tables(runs),
        *_cautions([run for run, _ in runs]),
        _left_out(len(runs)),
        _figures(runs, split, prefix, figures),
        comparison_sections(runs, prefix, figures),
        likelihood_sections(runs),
        translation_section(runs, split),
        contrastive_sections(runs, prefix, figures),
        chunking_sections(runs),
        blimp_section(runs),
        syntaxgym_section(runs),
        parsing_sections(runs),
        transformation_sections(runs),
        recognition_sections(runs),
        extraction_section(runs, figures.parent),
        locality_section(runs, split, prefix, figures),
        ablation_section(runs),
    )


def _left_out(count: int) -> Markup:
    if count <= MOST_DRAWN:
        return Markup("")
    return tag("p", f"Figures show the first {MOST_DRAWN} of these {count} runs; tables show all.", class_="note")


def _cautions(runs: Sequence[Run]) -> list[Markup]:
    ends = different_ends({run.name: run.card["result"] for run in runs})
    warnings = [*([ends] if ends else []), *worse_than_baselines({run.name: run.scores for run in runs})]
    return [tag("p", "Caution: ", warning, ".", class_="note") for warning in warnings]


def _explanations(runs: Shown, figures: Path) -> Markup:
    parts = [
        explanations(run, style, file_name(f"run-{number}", run.name), figures)
        for number, (run, style) in enumerate(first_drawn(runs), start=1)
    ]
    shown = [part for part in parts if part]
    return tag("section", tag("h2", "Layers on examples"), _left_out(len(runs)), *shown) if shown else Markup("")


def _run_card(run: Run, style: LineStyle) -> Markup:
    """Return the run card: settings, digests, hardware and command, in a collapsed element."""
    digests = {str(score["prepared_digest"]) for score in run.scores.values() if score.get("prepared_digest")}
    card = flattened({key: value for key, value in run.card.items() if key != "settings"})
    facts = [("folder", str(run.folder)), *(("prepared data", digest) for digest in sorted(digests)), *card]
    return tag(
        "details",
        tag("summary", swatch(style), run.name),
        tag("dl", *[joined(tag("dt", name), tag("dd", value)) for name, value in facts]),
        tag("h4", "settings.yaml: ", tag("code", "structattn train settings.yaml --output RUN"), " repeats the run"),
        tag("pre", run.settings_text),
        class_="card",
    )


def _data_heading(run: Run, groups: Sequence[Run]) -> str:
    """Return the name of a run's data; where groups share it, with the path, or the digest where they share that, too.

    Args:
        run: the first run of a group.
        groups: the first run of each group.
    """
    alike = [other for other in groups if other.data_name == run.data_name]
    if len(alike) == 1:
        return run.data_name
    places = shortest_names([Path(str(other.settings["data"])) for other in alike])
    place = places[[other.name for other in alike].index(run.name)]
    apart = place if places.count(place) == 1 else f"digest {run.data_digest[:12]}"
    return f"{run.data_name} ({apart})"


def write_report(folders: Sequence[Path], output: Path) -> Path:
    """Write a report on run folders to ``output/index.html`` and ``output/figures/``, and return the path of the page.

    The page needs no network and no other file. Equal run folders give equal bytes.

    Args:
        folders: run folders; missing scores, records or events are left out.
        output: the folder to write, created if missing; an earlier report in it is overwritten.

    Raises:
        StructattnError: a folder is not a run folder, a file in one is damaged, or ``output`` has other files.
    """
    runs = [(run, line_style(index)) for index, run in enumerate(read_recorded_runs(folders))]
    figures = create_report_folder(output)
    groups = list(grouped(runs, lambda shown: (shown[0].data_name, shown[0].data_digest)).values())
    firsts = [members[0][0] for members in groups]
    headings = [_data_heading(run, firsts) for run in firsts]
    title = "Report: " + ", ".join(headings)
    number = f"{len(runs)} run" + ("s" if len(runs) > 1 else "")
    parts = [tag("header", tag("h1", title), tag("p", f"{number}, {SIGNATURE}", class_="note"))]
    for index, (heading, members) in enumerate(zip(headings, groups, strict=True), start=1):
        parts.append(_group(heading if len(groups) > 1 else "Scores", members, f"data-{index}", figures))
    cards = tag("section", tag("h2", "Run cards"), *[_run_card(run, style) for run, style in runs])
    body = joined(*parts, _explanations(runs, figures), cards)
    page = output / "index.html"
    write_atomically(page, page_text(title, body))
    return page
