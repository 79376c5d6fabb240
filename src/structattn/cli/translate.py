"""``structattn translate``: lines from standard input to standard output."""

import sys
from enum import StrEnum
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from structattn.inference.translator import Draws


class Unknown(StrEnum):
    """What stands for words that the vocabulary lacks."""

    keep = "keep"
    copy = "copy"
    spell = "spell"


STANDARD_INPUT = Path("standard input")
LINES_AT_ONCE = 4096  # sorted and decoded together; what comes out does not depend on it


class Search(StrEnum):
    """Ways to search by name."""

    fairseq = "fairseq"
    you_2020 = "you-2020"
    dusell_chiang_2024 = "dusell-chiang-2024"


def translate(
    runs: Annotated[list[Path], typer.Argument(help="A run folder, or several whose models translate as one.")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Which weights: best, last, or the mean of K: best-K, last-K.")
    ] = None,
    search: Annotated[Search | None, typer.Option(help="How hypotheses are pruned and ranked.")] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy. If left out, --n-best at least.")
    ] = None,
    length_exponent: Annotated[
        float | None, typer.Option(min=0, help="Of the length that log p is divided by; greater means longer.")
    ] = None,
    extra: Annotated[
        int | None, typer.Option(min=0, help="Tokens that a translation may have more than its source.")
    ] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Write so many for each line, with number and score.")] = 1,
    unknown: Annotated[
        Unknown | None,
        typer.Option(
            help="What stands for words that the vocabulary lacks: <unk> (keep), the attended source word (copy), or a "
            "spelling (spell). If left out: a spelling where the model has learnt to spell, else <unk>."
        ),
    ] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option(
            help="A file with a line for each: what its translation begins with, or nothing. Of symbols that mark the "
            "beginnings of words, as SentencePiece's do, and of characters, the last word may go on."
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Draw translations instead of searching; below 1 sharper.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw each token from the k likeliest.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Draw each token from the likeliest that have this probability together."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn; each line's draws depend on it and the line alone.")] = 1,
    data: Annotated[Path | None, typer.Option(help="Where the prepared folder is, if it was moved.")] = None,
) -> None:
    """Translate lines from standard input to standard output, in their order.

    What is left out of the options is as the settings of the first run say under `evaluation`.
    """
    from dataclasses import replace

    from structattn.data.text.reading import Notices, lines_of, read_lines
    from structattn.evaluation.translation import make_translator
    from structattn.inference.runs import open_run
    from structattn.inference.translator import Translation
    from structattn.support.errors import DataError, UsageError
    from structattn.support.progress import progress

    opened = [open_run(run, checkpoint, data=data) for run in runs]
    given = {
        "search": None if search is None else search.value,
        "beam": beam or max(n_best, opened[0].settings.evaluation.beam),
        "length_exponent": length_exponent,
        "length_extra": extra,
        "unknown": None if unknown is None else unknown.value,
    }
    how = opened[0].settings.evaluation.changed({name: value for name, value in given.items() if value is not None})
    translator = make_translator(opened, how)
    draws = _draws(temperature, top_k, top_p, seed)
    if draws is not None:
        if any(given is not None for given in (search, beam, length_exponent)):
            told = "--search, --beam and --length-exponent look for the best; --temperature, --top-k and --top-p draw"
            raise UsageError(f"{told} instead")
        translator = replace(translator, draws=draws)
    elif n_best > how.beam:
        raise UsageError(f"--n-best {n_best} is more than --beam {how.beam}")

    def shown(number: int, found: list[Translation]) -> str:
        if n_best == 1:
            return (found[0].text if found else "") + "\n"
        return "".join(f"{number}\t{each.score:.6f}\t{each.text}\n" for each in found)

    source = cast(BufferedIOBase, sys.stdin.buffer)  # which it is, whatever the annotations say
    lines, done = (line.text for line in lines_of(source, STANDARD_INPUT, Notices())), 0
    beginnings = None if prefixes is None else (line.text for line in read_lines(prefixes, Notices()))
    names = (STANDARD_INPUT, prefixes or STANDARD_INPUT)
    with progress("Translating", None, "lines") as advance:
        while chunk := list(islice(lines, LINES_AT_ONCE)):
            begun = None if beginnings is None else list(islice(beginnings, len(chunk)))
            found = translator(chunk, n_best, advance, done + 1, begun, names)
            for number, translations in enumerate(found, start=done + 1):
                sys.stdout.write(shown(number, translations))
            sys.stdout.flush()
            done += len(chunk)
    if prefixes is not None and beginnings is not None and next(beginnings, None) is not None:
        raise DataError(prefixes, f"goes on after the {done} lines to translate", done + 1)


def _draws(temperature: float | None, top_k: int | None, top_p: float | None, seed: int) -> "Draws | None":
    """What the options say of chance; None where they say nothing."""
    from structattn.decoding import Sampling
    from structattn.inference.translator import Draws
    from structattn.support.errors import UsageError

    if temperature is top_k is top_p is None:
        return None
    try:
        return Draws(Sampling(1.0 if temperature is None else temperature, top_k, top_p), seed)
    except ValueError as error:
        raise UsageError(str(error)) from error
