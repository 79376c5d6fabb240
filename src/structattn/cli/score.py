"""``structattn score``: log-probabilities of given texts and translations."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import (
    STANDARD_INPUT,
    BatchSize,
    JsonLines,
    Runs,
    open_runs,
    standard_input_lines,
)
from structattn.cli.output import print_results
from structattn.support.environment import escape_control_characters
from structattn.support.errors import DataError, UsageError

if TYPE_CHECKING:
    from structattn.tasks.scores import Score


def score(
    runs: Runs,
    source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with source lines; of translation models.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with their translations, line by line.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Write the score of each token: number of the line, token, log p.")
    ] = False,
    batch_size: BatchSize = 64,
    json: JsonLines = False,
) -> None:
    """Write the log-probability of each line of standard input in nats, a tab, and its number of tokens.

    For translation models, several of which are an ensemble: log p(translation | source) of each pair of lines of
    --source and --target. The <eos> counts as a token; unknown words are scored by their spelling if all models spell
    them. Masked language models: the sum of log p(token | all other tokens), without <eos>.

    Examples:
        structattn score runs/stack < lines.txt
        structattn score runs/de-en --source new.de --target new.en
    """
    from structattn.support.progress import progress
    from structattn.tasks.loaded import in_chunks
    from structattn.tasks.registry import kind_of

    opened = list(open_runs(runs))
    if (source is None) != (target is None):
        raise UsageError("--source and --target belong together; expected both, or none for a language model")
    with progress("Scoring", None, "pairs" if source else "texts") as advance:
        if source is not None and target is not None:
            from structattn.tasks.translation.translators import make_pair_scorer

            pair_scorer = replace(make_pair_scorer(opened), per_token=tokens, batch_size=batch_size)
            score_pairs = partial(pair_scorer.score_texts, paths=(source, target), advance=advance)
            scores = in_chunks(_lines(source, target), score_pairs)
        elif opened[0].settings.task == "translation":
            raise UsageError(f"{opened[0].run_dir}: is a translation run; expected --source and --target")
        elif len(opened) > 1:
            raise UsageError(f"{len(opened)} runs; expected one, since ensembles are of translation models")
        else:
            scorer = kind_of(opened[0]).scorer(opened[0], tokens, batch_size)
            scores = in_chunks(standard_input_lines(), partial(scorer, path=STANDARD_INPUT, advance=advance))
        print_results(enumerate(scores, start=1), json, _plain, lambda each: each[1])


def _plain(numbered: "tuple[int, Score]") -> str:
    number, score = numbered
    if score.tokens is None:
        return f"{score.log_probability:.6f}\t{score.num_tokens}\n"
    return "".join(
        f"{number}\t{escape_control_characters(each.token)}\t{each.log_probability:.6f}\n" for each in score.tokens
    )


def _lines(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines; both files must have the same number of lines."""
    from structattn.text.reading import Notices, read_lines

    both = zip_longest(read_lines(source, Notices()), read_lines(target, Notices()))
    for number, (first, second) in enumerate(both, start=1):
        if first is None or second is None:
            raise DataError(
                source if first is None else target, "line is missing; the other file has more lines", number
            )
        yield first.text, second.text
