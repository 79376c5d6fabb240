"""``structattn score``: how likely given translations are."""

import sys
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated

import typer

PAIRS_AT_ONCE = 4096  # sorted and scored together; what comes out does not depend on it


def score(
    runs: Annotated[list[Path], typer.Argument(help="A run folder, or several whose models predict as one.")],
    source: Annotated[Path, typer.Option(help="Lines in the source language.")],
    target: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Which weights: best, last, or the mean of K: best-K, last-K.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the prepared folder is, if it was moved.")] = None,
) -> None:
    """Write for each pair of lines log p(translation | source) in nats, a tab, and the translation's tokens.

    The end of the translation is a token. Words without a number are spelt by models that spell, if all of them do.
    """
    from structattn.evaluation.translation import make_pair_scorer
    from structattn.inference.runs import open_run
    from structattn.support.progress import progress

    scorer = make_pair_scorer([open_run(run, checkpoint, data=data) for run in runs])
    pairs = (scorer.coded(*texts, (source, target), number) for number, texts in _lines(source, target))
    with progress("Scoring translations", None, "pairs") as advance:
        while chunk := list(islice(pairs, PAIRS_AT_ONCE)):
            for each in scorer(chunk, advance):
                sys.stdout.write(f"{-each.nats:.6f}\t{each.tokens}\n")
            sys.stdout.flush()


def _lines(source: Path, target: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """The lines of both files, numbered; neither may have more."""
    from structattn.data.text.reading import Notices, read_lines
    from structattn.support.errors import DataError

    both = zip_longest(read_lines(source, Notices()), read_lines(target, Notices()))
    for number, (first, second) in enumerate(both, start=1):
        if first is None or second is None:
            raise DataError(
                source if first is None else target, "there is no such line; the other file has one", number
            )
        yield number, (first.text, second.text)
