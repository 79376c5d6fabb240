"""Scores as a table in the terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from structattn.evaluation.scores import SplitScores


def _nats(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"


def print_scores(results: Sequence[tuple[Path, SplitScores]]) -> None:
    """One row for each run and split; bound and difference where a bound is known."""
    bounded = any(scores.lower_bound is not None for _, scores in results)
    metrics = list(dict.fromkeys(name for _, scores in results for name in scores.translation or {}))
    known = any(scores.dependencies is not None for _, scores in results)
    answers = any(scores.accuracy is not None for _, scores in results)
    table = Table(caption="nats per symbol, the end of each sequence counted", caption_justify="left")
    table.add_column("run", overflow="fold")
    table.add_column("split")
    for heading in (
        "cross-entropy",
        *(("bound", "difference") if bounded else ()),
        "perplexity",
        *(("accuracy",) if answers else ()),
        *(("precision", "recall") if known else ()),
        *metrics,
    ):
        table.add_column(heading, justify="right")
    folders = {folder for folder, _ in results}
    short = len({folder.name for folder in folders}) == len(folders)
    for folder, scores in results:
        cells = [_nats(scores.cross_entropy)]
        if bounded:
            cells += [_nats(scores.lower_bound), _nats(scores.cross_entropy_difference)]
        cells.append(f"{scores.perplexity:,.4f}")
        if answers:
            cells.append("—" if scores.accuracy is None else f"{scores.accuracy:.2%}")
        if known:
            found = scores.dependencies
            cells += ["—", "—"] if found is None else [f"{found.precision:.4f}", f"{found.recall:.4f}"]
        of_metrics = scores.translation or {}
        cells += [f"{of_metrics[name].value:.2f}" if name in of_metrics else "—" for name in metrics]
        table.add_row(Text(folder.name if short else str(folder)), scores.split, *cells)
    Console().print(table)
