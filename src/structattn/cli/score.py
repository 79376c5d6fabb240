"""``structattn score``: log-probabilities of given translations."""

import sys
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.options import Checkpoint, PreparedData

PAIRS_AT_ONCE = 4096  # sorted and scored together; the output does not depend on it


def score(
    runs: Annotated[list[Path], typer.Argument(help="Run folder, or several to score with their ensemble.")],
    source: Annotated[Path, typer.Option(help="File with source lines.")],
    target: Annotated[Path, typer.Option(help="File with their translations, line by line.")],
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Write log p(translation | source) in nats, a tab, and the number of tokens for each pair of lines.

    The <eos> counts as a token. Unknown words are scored by their spelling if all models spell unknown words.
    """
    from structattn.evaluation.translation import make_pair_scorer
    from structattn.inference.runs import open_run
    from structattn.support.progress import progress

    scorer = make_pair_scorer([open_run(run, checkpoint, data=data) for run in runs])
    pairs = (scorer.encode(*texts, (source, target), number) for number, texts in _lines(source, target))
    with progress("Scoring translations", None, "pairs") as advance:
        while chunk := list(islice(pairs, PAIRS_AT_ONCE)):
            for each in scorer(chunk, advance):
                sys.stdout.write(f"{each.log_probability:.6f}\t{each.num_tokens}\n")
            sys.stdout.flush()


def _lines(source: Path, target: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the numbered pairs of lines; both files must have the same number of lines."""
    from structattn.data.text.reading import Notices, read_lines
    from structattn.support.errors import DataError

    both = zip_longest(read_lines(source, Notices()), read_lines(target, Notices()))
    for number, (first, second) in enumerate(both, start=1):
        if first is None or second is None:
            raise DataError(
                source if first is None else target, "line is missing; the other file has more lines", number
            )
        yield number, (first.text, second.text)
