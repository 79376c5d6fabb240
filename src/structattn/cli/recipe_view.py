"""Compare the results of a sweep with published numbers and claims."""

from collections.abc import Sequence

from rich.table import Table

from structattn.cli.output import literal, print_line, print_table
from structattn.sweeps.comparison import ClaimResult, PublishedComparison


def print_comparisons(comparisons: Sequence[PublishedComparison]) -> None:
    """Print one table per source, with one row per published number, and the differences of configuration below."""
    for source in dict.fromkeys(comparison.source for comparison in comparisons):
        chosen = [comparison for comparison in comparisons if comparison.source == source]
        notes = list(dict.fromkeys(each.differences for each in chosen if each.differences))
        table = Table(
            title=literal(source), title_justify="left", caption="±95 %: half the confidence interval of our mean"
        )
        for axis in chosen[0].cell:
            table.add_column(literal(axis))
        for heading in ("published", "ours", "±95 %", "trials", ""):
            table.add_column(heading, justify="right")
        for each in chosen:
            table.add_row(*(literal(name) for name in each.cell.values()), *_numbers(each), _verdict(each, notes))
        print_table(table)
        for number, differences in enumerate(notes, start=1):
            print_line(f"{_mark(number)}: {'; '.join(differences)}")


def _numbers(each: PublishedComparison) -> tuple[str, ...]:
    spread = "" if each.deviation is None else f" ± {each.deviation:g}"
    return f"{each.published:g}{spread}", _number(each.ours), _number(each.interval), str(each.trials)


def _verdict(each: PublishedComparison, notes: Sequence[tuple[str, ...]]) -> str:
    if each.differences:
        return _mark(notes.index(each.differences) + 1)
    return {True: "inside", False: "outside", None: "—"}[each.inside]


def _mark(number: int) -> str:
    return f"different configuration ({number})"


def print_claims(claims: Sequence[ClaimResult]) -> None:
    """Print one row per claim and cell."""
    if not claims:
        return
    table = Table("claim", *claims[0].cell, title="Claims", title_justify="left")
    for heading in ("ours", "compared with", ""):
        table.add_column(heading, justify="right")
    for claim in claims:
        holds = {True: "holds", False: "FAILS", None: "—"}[claim.holds]
        cell = (literal(name) for name in claim.cell.values())
        table.add_row(literal(claim.description), *cell, _claimed(claim), _number(claim.bound), holds)
    print_table(table)


def _claimed(claim: ClaimResult) -> str:
    ours = _number(claim.ours)
    return ours if claim.interval is None else f"{ours} ({' to '.join(map(_number, claim.interval))})"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
