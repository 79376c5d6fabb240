"""``structattn score``: log-probabilities of given texts and translations."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.lines import STANDARD_INPUT, standard_input_lines
from structattn.cli.options import Checkpoint, JsonLines, PreparedData
from structattn.cli.output import print_json
from structattn.support.environment import escape_control_characters

if TYPE_CHECKING:
    from structattn.loading.trained_run import TrainedRun
    from structattn.tasks.scores import Score


def score(
    runs: Annotated[list[Path], typer.Argument(help="Run folder; several for the ensemble of translation models.")],
    source: Annotated[Path | None, typer.Option(help="File with source lines; of translation models.")] = None,
    target: Annotated[Path | None, typer.Option(help="File with their translations, line by line.")] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Write the score of each token: number of the line, token, log p.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of texts scored at once.")] = 64,
    json: JsonLines = False,
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Write the log-probability of each line of standard input in nats, a tab, and its number of tokens.

    For translation models: log p(translation | source) of each pair of lines of --source and --target. The <eos> counts
    as a token; unknown words are scored by their spelling if all models spell them. Masked language models: the sum of
    log p(token | all other tokens), without <eos>.
    """
    from structattn.loading.runs import open_run
    from structattn.support.errors import UsageError
    from structattn.support.progress import progress

    opened = [open_run(run, checkpoint, data=data) for run in runs]
    if (source is None) != (target is None):
        raise UsageError("--source and --target belong together; expected both, or none for a language model")
    with progress("Scoring", None, "pairs" if source else "texts") as advance:
        if source is not None and target is not None:
            found = _pair_scores(opened, (source, target), tokens, batch_size, advance)
        elif opened[0].settings.task == "translation":
            raise UsageError(f"{runs[0]}: is a translation run; expected --source and --target")
        elif len(opened) > 1:
            raise UsageError(f"{len(runs)} runs; expected one, since ensembles are of translation models")
        else:
            found = _text_scores(opened[0], tokens, batch_size, advance)
        for number, each in enumerate(found, start=1):
            if json:
                print_json(each)
            else:
                sys.stdout.write(_plain(number, each))


def _plain(number: int, score: "Score") -> str:
    if score.tokens is None:
        return f"{score.log_probability:.6f}\t{score.num_tokens}\n"
    return "".join(
        f"{number}\t{escape_control_characters(each.token)}\t{each.log_probability:.6f}\n" for each in score.tokens
    )


def _text_scores(
    run: "TrainedRun", tokens: bool, batch_size: int, advance: Callable[[int], object]
) -> "Iterator[Score]":
    from structattn.tasks.registry import kind_of
    from structattn.tasks.streams import in_chunks

    scorer = kind_of(run).scorer(run, tokens, batch_size)
    return in_chunks(standard_input_lines(), partial(scorer, path=STANDARD_INPUT, advance=advance))


def _pair_scores(
    runs: "Sequence[TrainedRun]",
    paths: tuple[Path, Path],
    tokens: bool,
    batch_size: int,
    advance: Callable[[int], object],
) -> "Iterator[Score]":
    from structattn.tasks.streams import in_chunks
    from structattn.tasks.translation.translators import make_pair_scorer

    scorer = replace(make_pair_scorer(runs), per_token=tokens, batch_size=batch_size)
    pairs = (scorer.encode(*texts, paths, number) for number, texts in _lines(*paths))
    return in_chunks(pairs, lambda chunk, first: scorer(chunk, advance))


def _lines(source: Path, target: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the numbered pairs of lines; both files must have the same number of lines."""
    from structattn.support.errors import DataError
    from structattn.text.reading import Notices, read_lines

    both = zip_longest(read_lines(source, Notices()), read_lines(target, Notices()))
    for number, (first, second) in enumerate(both, start=1):
        if first is None or second is None:
            raise DataError(
                source if first is None else target, "line is missing; the other file has more lines", number
            )
        yield number, (first.text, second.text)
