"""``structattn compare``: significance tests of translation runs and language models against a base run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import Json, overrides_of, run_paths
from structattn.cli.output import literal, numbers_table, print_json, print_line, print_table
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.metrics.paired_likelihoods import CrossEntropyDifference
    from structattn.metrics.translation import PairedDifference
    from structattn.tasks.translation.compare import BinDifference


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="BASE RUN... [data=FOLDER]",
            show_default=False,
            help="Run folder of the base, and runs on the same data; those of translation must be evaluated.",
        ),
    ],
    split: Annotated[str, typer.Option(metavar="NAME", help="Split on which they are compared.")] = "test",
    samples: Annotated[int, typer.Option(min=40, metavar="N", help="Number of bootstrap samples.")] = 1000,
    json: Json = False,
) -> None:
    """Compare runs with a base run: 95 % intervals and a paired bootstrap test.

    Translation: BLEU, chrF2 and TER, and differences in BLEU by reference length and by the off-diagonality of the
    base's attention. Language models: cross-entropy, of the same tokens. The results are stored in the run folders and
    appear in reports.

    Examples:
        structattn compare runs/plain runs/stack --split valid
    """
    from structattn.loading.compare import compare_likelihoods
    from structattn.report.tables import different_ends, few_examples
    from structattn.runs.folder import existing_run
    from structattn.tasks.translation.compare import compare_runs, compare_runs_by_bin, write_comparison

    base, *others = run_paths(runs)
    data, changes = overrides_of(runs)
    if not others or changes:
        raise UsageError("expected a base run and runs to compare with it, and of settings data=FOLDER alone")
    warning = different_ends({str(run): existing_run(run).read_card()["result"] for run in (base, *others)})
    if warning:
        print_line(f"warning: {warning}", error=True)
    if existing_run(base).read_settings().task != "translation":
        differences = compare_likelihoods(base, others, split, samples, data)
        if json:
            pairs = zip(others, differences, strict=True)
            print_json([{"base": base, "other": other, "split": split, "likelihood": each} for other, each in pairs])
        else:
            _print_likelihoods(base, others, differences)
        caution = few_examples(differences[0].examples)
        if caution:
            print_line(f"warning: {caution}", error=True)
        return
    found = []
    for other in others:
        whole = compare_runs(base, other, split, samples, data)
        bins = compare_runs_by_bin(base, other, split, samples, data)
        write_comparison(base, other, split, whole, bins)
        found.append({"base": base, "other": other, "split": split, "metrics": whole, "bins": bins})
        if not json:
            _print_whole(base, other, whole)
            _print_bins(base, other, bins)
    if json:
        print_json(found)


def _print_likelihoods(base: Path, others: Sequence[Path], found: "Sequence[CrossEntropyDifference]") -> None:
    caption = f"nats per token; 95 % intervals and p by paired bootstrap resampling of {found[0].examples:,} examples"
    headings = ["cross-entropy", "95 % interval", "difference", "95 % interval", "p"]
    table = numbers_table(["run"], headings, caption)
    first = found[0]
    table.add_row(literal(base.name), f"{first.first:.4f}", f"{first.first_lower:.4f} to {first.first_upper:.4f}")
    for other, each in zip(others, found, strict=True):
        score = (f"{each.second:.4f}", f"{each.second_lower:.4f} to {each.second_upper:.4f}")
        difference = (f"{each.difference:+.4f}", f"{each.lower:+.4f} to {each.upper:+.4f}", f"{each.p:.4f}")
        table.add_row(literal(other.name), *score, *difference)
    print_table(table)


def _print_whole(base: Path, other: Path, found: "Mapping[str, PairedDifference]") -> None:
    signatures = "\n".join(f"{name}: {each.signature}" for name, each in found.items())
    table = numbers_table(["metric"], [base.name, other.name, "difference", "p"], signatures)
    for name, each in found.items():
        scores = (f"{each.first:.2f} ± {each.first_interval:.2f}", f"{each.second:.2f} ± {each.second_interval:.2f}")
        table.add_row(name, *scores, f"{each.second - each.first:+.2f}", f"{each.p:.4f}")
    print_table(table)


def _print_bins(base: Path, other: Path, found: "Sequence[BinDifference]") -> None:
    """Print one table for each sentence attribute, with bins of equal size."""
    bins = [each for each in found if each.binning == "equal count"]
    for attribute in dict.fromkeys(each.attribute for each in bins):
        headings = ["from", "to", "sentences", base.name, other.name, "difference", "95 % interval"]
        table = numbers_table([], headings, title=f"BLEU by {attribute}")
        for each in (each for each in bins if each.attribute == attribute):
            scores = (f"{each.base:.2f}", f"{each.other:.2f}", f"{each.difference:+.2f}")
            interval = f"{each.lower:+.2f} to {each.upper:+.2f}"
            table.add_row(f"{each.low:.3g}", f"{each.high:.3g}", str(each.sentences), *scores, interval)
        print_table(table)
