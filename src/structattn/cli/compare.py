"""``structattn compare``: whether one translation run is better than another, or by chance."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    first: Annotated[Path, typer.Argument(help="A run folder that was evaluated.")],
    second: Annotated[Path, typer.Argument(help="Another one, on the same data.")],
    split: Annotated[str, typer.Option(help="The split whose translations are compared.")] = "test",
    samples: Annotated[int, typer.Option(min=1, help="Resampled corpora of the paired bootstrap.")] = 1000,
    data: Annotated[Path | None, typer.Option(help="Where the prepared folder is, if it was moved.")] = None,
) -> None:
    """Compare the kept translations of two runs on BLEU, chrF2 and TER, with 95 % intervals and a paired bootstrap."""
    from rich.console import Console
    from rich.table import Table

    from structattn.evaluation.comparing import compared_runs

    found = compared_runs(first, second, split, samples, data)
    signatures = "\n".join(f"{name}: {each.signature}" for name, each in found.items())
    table = Table(caption=signatures, caption_justify="left")
    for heading in ("metric", first.name, second.name, "difference", "p"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name, each in found.items():
        scores = (f"{each.first:.2f} ± {each.first_interval:.2f}", f"{each.second:.2f} ± {each.second_interval:.2f}")
        table.add_row(name, *scores, f"{each.second - each.first:+.2f}", f"{each.p:.4f}")
    Console().print(table)
