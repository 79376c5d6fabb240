"""Published numbers and claims beside a sweep's results, in the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from structattn.sweeps.comparison import Comparison, Verdict


def print_comparisons(comparisons: Sequence[Comparison]) -> None:
    """One row for each published number, a table for each source."""
    for source in dict.fromkeys(comparison.source for comparison in comparisons):
        chosen = [comparison for comparison in comparisons if comparison.source == source]
        table = Table(title=source, title_justify="left", caption="± of ours: half the 95 % interval of the mean")
        for axis in chosen[0].cell:
            table.add_column(axis)
        for heading in ("published", "ours", "±95 %", "trials", ""):
            table.add_column(heading, justify="right")
        for each in chosen:
            spread = "" if each.deviation is None else f" ± {each.deviation:g}"
            table.add_row(
                *(Text(name) for name in each.cell.values()),
                f"{each.published:g}{spread}",
                _number(each.ours),
                _number(each.interval),
                str(each.trials),
                {True: "inside", False: "outside", None: "—"}[each.inside],
            )
        Console().print(table)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """One row for each claim and cell."""
    if not verdicts:
        return
    table = Table("claim", *verdicts[0].cell, title="Claims", title_justify="left")
    for heading in ("ours", "against", ""):
        table.add_column(heading, justify="right")
    for verdict in verdicts:
        holds = {True: "holds", False: "FAILS", None: "—"}[verdict.holds]
        cell = (Text(name) for name in verdict.cell.values())
        table.add_row(Text(verdict.says), *cell, _number(verdict.ours), _number(verdict.bound), holds)
    Console().print(table)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
