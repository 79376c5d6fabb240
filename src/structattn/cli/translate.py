"""``structattn translate``: translate standard input to standard output."""

import sys
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from structattn.cli.options import (
    STANDARD_INPUT,
    JsonLines,
    Runs,
    Temperature,
    TopK,
    TopP,
    check_output_files,
    open_runs,
    overrides_of,
    standard_input_lines,
)
from structattn.cli.output import print_results
from structattn.support.errors import DataError, UsageError

Precision = Literal["float32", "bf16"]
LINES_AT_ONCE = 4096  # sorted and decoded together; the output does not depend on it


def translate(
    runs: Runs,
    n_best: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of translations per line, with line number and score.")
    ] = 1,
    prefixes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The beginning of each translation, possibly empty, one per line."),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed; equal lines have equal samples.")] = 1,
    precision: Annotated[
        Precision,
        typer.Option(
            help="Precision of products; bf16 is for GPUs and CPUs with instructions for it, and changes translations."
        ),
    ] = "float32",
    alignments: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write word alignments by cross-attention, as 0-0 1-2, one line for each."),
    ] = None,
    json: JsonLines = False,
) -> None:
    """Translate lines from standard input to standard output.

    Several runs translate as an ensemble, with the evaluation settings of the first: evaluation.search, beam_size,
    length_penalty, max_length_ratio, max_length_offset, max_length and unknown_words. The beam has at least as many
    hypotheses as --n-best. With --temperature, --top-k or --top-p, translations are sampled instead. If tokens mark
    beginnings of words (SentencePiece) or are characters, the last word of a prefix may be continued. An empty line
    stays empty, with score 0. --json tells what was cut.

    --alignments writes a line of pairs source-target for each translation: two words, counted from 0, are linked if a
    token of the target word was predicted with the greatest weight on a token of the source word, in the last layer
    with cross-attention, averaged over its heads.

    Examples:
        structattn translate runs/de-en < new.de
        structattn translate runs/de-en evaluation.beam_size=8 --n-best 5 < new.de
        structattn translate runs/de-en --alignments new.align < new.de > new.en
    """
    from dataclasses import replace

    from structattn.decoding.sampling import seeded_sampling
    from structattn.support.files import create_folder, write_atomically
    from structattn.support.progress import progress
    from structattn.tasks.translation.attended import pharaoh
    from structattn.tasks.translation.predict import Translation
    from structattn.tasks.translation.translators import make_translator
    from structattn.text.reading import Notices, read_lines

    check_output_files({"--alignments": alignments}, {"--prefixes": prefixes})
    opened, changes = list(open_runs(runs, decodes=True)), overrides_of(runs)[1]
    how = opened[0].settings.evaluation
    sampling = seeded_sampling(temperature, top_k, top_p, seed)
    if "beam_size" not in changes and sampling is None:
        how = how.changed({"beam_size": max(n_best, how.beam_size)})
    translator = replace(make_translator(opened, how, precision), aligns=alignments is not None)
    if sampling is not None:
        _require_no_search(changes)
        translator = replace(translator, sampling=sampling)
    elif n_best > how.beam_size:
        raise UsageError(f"--n-best {n_best} is more than evaluation.beam_size={how.beam_size}")

    def as_text(result: tuple[int, list[Translation]]) -> str:
        number, translations = result
        if n_best == 1:
            return (translations[0].text if translations else "") + "\n"
        return "".join(f"{number}\t{each.score:.6f}\t{each.text}\n" for each in translations)

    def links(translations: list[Translation]) -> list[str]:
        found = [pharaoh(each.alignment or ()) for each in translations]
        return found if found or n_best > 1 else [""]  # as the line of standard output is empty

    lines, done, aligned = standard_input_lines(), 0, list[str]()
    beginnings = None if prefixes is None else (line.text for line in read_lines(prefixes, Notices()))
    paths = (STANDARD_INPUT, prefixes or STANDARD_INPUT)
    with progress("Translating", None, "lines") as advance:
        while chunk := list(islice(lines, LINES_AT_ONCE)):
            begun = None if beginnings is None else list(islice(beginnings, len(chunk)))
            translations = translator(chunk, n_best, advance, done + 1, begun, paths)
            if alignments is not None:
                aligned += chain.from_iterable(map(links, translations))
            print_results(
                enumerate(translations, start=done + 1), json, as_text, lambda each: {"translations": each[1]}
            )
            sys.stdout.flush()
            done += len(chunk)
    if alignments is not None:
        create_folder(alignments.parent)
        write_atomically(alignments, "".join(f"{line}\n" for line in aligned))
    if prefixes is not None and beginnings is not None and next(beginnings, None) is not None:
        raise DataError(prefixes, f"has more lines than the {done} lines to translate", done + 1)


def _require_no_search(changes: Mapping[str, Any]) -> None:
    from structattn.tasks.translation.translators import SETTINGS_OF_SEARCH

    given = [f"evaluation.{name}" for name in SETTINGS_OF_SEARCH if name in changes]
    if given:
        raise UsageError(
            f"{' and '.join(given)} replaced, for beam search; --temperature, --top-k and --top-p are for sampling; "
            "expected options of one kind"
        )
