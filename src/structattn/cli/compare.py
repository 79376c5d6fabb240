"""``structattn compare``: significance tests of translation runs and language models against a base run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import Json, distinct_run_paths, overrides_of
from structattn.cli.output import literal, numbers_table, print_json, print_table, print_warning
from structattn.support.errors import UsageError
from structattn.support.files import check_writable_folder
from structattn.support.grouping import grouped

if TYPE_CHECKING:
    from structattn.metrics.paired_likelihoods import CrossEntropyDifference
    from structattn.metrics.translation import PairedDifference
    from structattn.tasks.translation.compare import BinDifference


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="BASE RUN... | SWEEP [data=FOLDER]",
            show_default=False,
            help="Run folder of the base, and runs on the same data, those of translation evaluated; or a sweep. "
            "A folder given twice is read once.",
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Compare groups of runs that agree in a field of their settings, such as model, or in an axis of a "
            "sweep, over their seeds.  [default for sweeps: the cells]",
        ),
    ] = None,
    base_group: Annotated[
        str | None, typer.Option("--base", metavar="NAME", help="Group that is the base.  [default: the first]")
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="Split on which they are compared.")] = "test",
    samples: Annotated[int, typer.Option(min=40, metavar="N", help="Number of bootstrap samples.")] = 1000,
    json: Json = False,
) -> None:
    """Compare runs with a base run, or groups of runs over their seeds, with 95 % intervals.

    Translation: BLEU, chrF2 and TER, and differences in BLEU by reference length and by the off-diagonality of the
    base's attention. Language models: cross-entropy, of the same tokens. Examples are resampled (paired bootstrap), so
    intervals and p hold for these runs, not for their models; they are stored in the run folders and appear in reports.

    Groups, of any task: the mean over seeds of the main score that evaluate has written, and its difference from that
    of the base, in pairs where seeds are shared.

    Examples:
        structattn compare runs/plain runs/stack --split valid
        structattn compare runs/* --by model
        structattn compare runs/sweep --base nondeterministic
    """
    from structattn.sweeps.results import is_sweep

    paths, (data, changes) = distinct_run_paths(runs), overrides_of(runs)
    if by is not None or base_group is not None or any(map(is_sweep, paths)):
        if data is not None or changes:
            raise UsageError("groups are compared by the scores that evaluate has written; expected no settings")
        _compare_groups(paths, by, base_group, split, json)
        return
    base, *others = paths
    if not others or changes:
        raise UsageError("expected a base run and other runs to compare with it, and of settings data=FOLDER alone")
    _compare_runs(base, others, split, samples, data, json)


def _compare_groups(paths: Sequence[Path], by: str | None, base: str | None, split: str, json: bool) -> None:
    from structattn.cli.compare_groups import compare_groups, print_groups

    score, groups = compare_groups(paths, by, base, split)
    if json:
        print_json({"split": split, "score": score.path, "groups": groups})
    else:
        print_groups(score, split, groups)


def _compare_runs(base: Path, others: Sequence[Path], split: str, samples: int, data: Path | None, json: bool) -> None:
    from structattn.report.tables import different_ends
    from structattn.runs.folder import existing_run

    warning = different_ends({str(run): existing_run(run).read_card()["result"] for run in (base, *others)})
    if warning:
        print_warning(warning)
    for other in others:
        check_writable_folder(other / "analyses")
    if existing_run(base).read_settings().task == "translation":
        _compare_translations(base, others, split, samples, data, json)
    else:
        _compare_language_models(base, others, split, samples, data, json)


def _compare_language_models(
    base: Path, others: Sequence[Path], split: str, samples: int, data: Path | None, json: bool
) -> None:
    from structattn.loading.compare import compare_likelihoods

    differences = compare_likelihoods(base, others, split, samples, data)
    if json:
        pairs = zip(others, differences, strict=True)
        print_json([{"base": base, "other": other, "split": split, "likelihood": each} for other, each in pairs])
    else:
        _print_likelihoods(base, others, differences)
    _warn_of_few(differences[0].examples)


def _warn_of_few(examples: int) -> None:
    from structattn.report.tables import few_examples

    caution = few_examples(examples)
    if caution:
        print_warning(caution)


def _compare_translations(
    base: Path, others: Sequence[Path], split: str, samples: int, data: Path | None, json: bool
) -> None:
    from structattn.tasks.translation.compare import (
        REFERENCE_LENGTH,
        compare_runs,
        compare_runs_by_bin,
        write_comparison,
    )

    comparisons, examples = [], 0
    for other in others:
        whole = compare_runs(base, other, split, samples, data)
        bins = compare_runs_by_bin(base, other, split, samples, data)
        write_comparison(base, other, split, whole, bins)
        examples = sum(each.sentences for each in bins if each.attribute == REFERENCE_LENGTH)
        comparisons.append({"base": base, "other": other, "split": split, "metrics": whole, "bins": bins})
        if not json:
            _print_whole(base, other, whole)
            _print_bins(base, other, bins)
    if json:
        print_json(comparisons)
    _warn_of_few(examples)


def _print_likelihoods(base: Path, others: Sequence[Path], differences: "Sequence[CrossEntropyDifference]") -> None:
    from structattn.report.runs import shortest_names
    from structattn.report.tables import OF_TWO_RUNS

    resampled = f"95 % intervals and p by paired bootstrap resampling of {differences[0].examples:,} examples"
    caption = f"nats per token; {resampled}. {OF_TWO_RUNS}"
    headings = ["cross-entropy", "95 % interval", "difference", "95 % interval", "p"]
    table = numbers_table(["run"], headings, caption)
    first, (name, *names) = differences[0], shortest_names([base, *others])
    table.add_row(literal(name), f"{first.first:.4f}", f"{first.first_lower:.4f} to {first.first_upper:.4f}")
    for name, each in zip(names, differences, strict=True):
        score = (f"{each.second:.4f}", f"{each.second_lower:.4f} to {each.second_upper:.4f}")
        difference = (f"{each.difference:+.4f}", f"{each.lower:+.4f} to {each.upper:+.4f}", f"{each.p:.4f}")
        table.add_row(literal(name), *score, *difference)
    print_table(table)


def _print_whole(base: Path, other: Path, differences: "Mapping[str, PairedDifference]") -> None:
    from structattn.report.runs import shortest_names
    from structattn.report.tables import OF_TWO_RUNS

    signatures = "\n".join(f"{name}: {each.signature}" for name, each in differences.items())
    headings = [*shortest_names([base, other]), "difference", "p"]
    table = numbers_table(["metric"], headings, f"{signatures}\n{OF_TWO_RUNS}")
    for name, each in differences.items():
        scores = (f"{each.first:.2f} ± {each.first_interval:.2f}", f"{each.second:.2f} ± {each.second_interval:.2f}")
        table.add_row(name, *scores, f"{each.second - each.first:+.2f}", f"{each.p:.4f}")
    print_table(table)


def _print_bins(base: Path, other: Path, differences: "Sequence[BinDifference]") -> None:
    """Print one table for each sentence attribute, with bins of equal size."""
    from structattn.report.runs import shortest_names

    bins = (each for each in differences if each.binning == "equal count")
    for attribute, of_attribute in grouped(bins, lambda each: each.attribute).items():
        headings = ["from", "to", "sentences", *shortest_names([base, other]), "difference", "95 % interval"]
        table = numbers_table([], headings, title=f"BLEU by {attribute}")
        for each in of_attribute:
            scores = (f"{each.base:.2f}", f"{each.other:.2f}", f"{each.difference:+.2f}")
            interval = f"{each.lower:+.2f} to {each.upper:+.2f}"
            table.add_row(f"{each.low:.3g}", f"{each.high:.3g}", str(each.sentences), *scores, interval)
        print_table(table)
