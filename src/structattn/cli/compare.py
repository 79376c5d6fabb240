"""``structattn compare``: significance tests of translation runs against a base run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import PreparedData
from structattn.cli.output import literal

if TYPE_CHECKING:
    from structattn.evaluation.bleu_by_bin import BinDifference
    from structattn.metrics.translation import PairedDifference


def compare(
    base: Annotated[Path, typer.Argument(help="Run folder of the base run; it must be evaluated.")],
    others: Annotated[list[Path], typer.Argument(help="Run folders to compare with it, on the same data.")],
    split: Annotated[str, typer.Option(help="Split whose translations are compared.")] = "test",
    samples: Annotated[int, typer.Option(min=40, help="Number of bootstrap samples.")] = 1000,
    data: PreparedData = None,
) -> None:
    """Compare translation runs with a base run: BLEU, chrF2 and TER with 95 % intervals and a paired bootstrap test.

    Differences in BLEU are also shown by reference length and by the off-diagonality of the base's attention. The
    results are stored in the run folders and appear in reports.
    """
    from structattn.evaluation.comparison import compare_runs, compare_runs_by_bin, write_comparison

    for other in others:
        whole = compare_runs(base, other, split, samples, data)
        bins = compare_runs_by_bin(base, other, split, samples, data)
        _print_whole(base, other, whole)
        _print_bins(base, other, bins)
        write_comparison(base, other, split, whole, bins)


def _print_whole(base: Path, other: Path, found: "Mapping[str, PairedDifference]") -> None:
    from rich.console import Console
    from rich.table import Table

    signatures = "\n".join(f"{name}: {each.signature}" for name, each in found.items())
    table = Table(caption=signatures, caption_justify="left")
    for heading in ("metric", base.name, other.name, "difference", "p"):
        table.add_column(literal(heading), justify="left" if heading == "metric" else "right")
    for name, each in found.items():
        scores = (f"{each.first:.2f} ± {each.first_interval:.2f}", f"{each.second:.2f} ± {each.second_interval:.2f}")
        table.add_row(name, *scores, f"{each.second - each.first:+.2f}", f"{each.p:.4f}")
    Console().print(table)


def _print_bins(base: Path, other: Path, found: "Sequence[BinDifference]") -> None:
    """Print one table for each sentence attribute, with bins of equal size."""
    from rich.console import Console
    from rich.table import Table

    bins = [each for each in found if each.binning == "equal count"]
    for attribute in dict.fromkeys(each.attribute for each in bins):
        table = Table(title=f"BLEU by {attribute}", title_justify="left")
        for heading in ("from", "to", "sentences", base.name, other.name, "difference", "95 % interval"):
            table.add_column(literal(heading), justify="right")
        for each in (each for each in bins if each.attribute == attribute):
            scores = (f"{each.base:.2f}", f"{each.other:.2f}", f"{each.difference:+.2f}")
            interval = f"{each.lower:+.2f} to {each.upper:+.2f}"
            table.add_row(f"{each.low:.3g}", f"{each.high:.3g}", str(each.sentences), *scores, interval)
        Console().print(table)
