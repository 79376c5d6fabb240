"""``structattn translate``: translate standard input to standard output."""

import sys
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.lines import STANDARD_INPUT, standard_input_lines
from structattn.cli.options import Checkpoint, JsonLines, PreparedData
from structattn.cli.output import print_json


class Unknown(StrEnum):
    """The output for unknown words."""

    keep = "keep"
    copy = "copy"
    spell = "spell"


class Precision(StrEnum):
    """The precision of products."""

    float32 = "float32"
    bf16 = "bf16"


LINES_AT_ONCE = 4096  # sorted and decoded together; the output does not depend on it


class Search(StrEnum):
    """Names of beam search variants."""

    fairseq = "fairseq"
    gnmt = "gnmt"
    vaswani_2017 = "vaswani-2017"
    you_2020 = "you-2020"
    dusell_chiang_2024 = "dusell-chiang-2024"


def translate(
    runs: Annotated[list[Path], typer.Argument(help="Run folder, or several to translate with their ensemble.")],
    checkpoint: Checkpoint = None,
    search: Annotated[
        Search | None, typer.Option(help="Beam search variant, how hypotheses are pruned and ranked.")
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, help="Beam size; 1 is greedy.  \\[default: as in the settings, at least --n-best]"),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Length penalty: log p is divided by the length (fairseq) or by (5 + length) / 6 (gnmt, vaswani-2017, "
            "you-2020) to this power; larger values give longer translations.",
        ),
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option(
            min=0, help="Maximal number of tokens of a translation for each token of its source; see --extra."
        ),
    ] = None,
    extra: Annotated[
        int | None,
        typer.Option(min=0, help="Maximal number of tokens of a translation beyond --ratio times the source."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Maximal number of tokens of any translation, whatever its source.")
    ] = None,
    n_best: Annotated[
        int, typer.Option(min=1, help="Number of translations per line, written with line number and score.")
    ] = 1,
    unknown: Annotated[
        Unknown | None,
        typer.Option(
            help="Output for unknown words: <unk> (keep), the attended source word (copy), or a spelling (spell).  "
            "[default: spell if the model can, else keep]"
        ),
    ] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option(
            help="File with the prefix of each translation, one per line, possibly empty. If tokens mark beginnings "
            "of words, as those of SentencePiece do, or are characters, the last word of a prefix may be continued."
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sample translations instead of beam search; values below 1 sharpen.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Sample from the smallest set of tokens with this total probability."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of sampling; lines are sampled independently.")] = 1,
    precision: Annotated[
        Precision,
        typer.Option(
            help="Precision of products; bf16 is for GPUs and CPUs with instructions for it, and changes translations."
        ),
    ] = Precision.float32,
    json: JsonLines = False,
    data: PreparedData = None,
) -> None:
    """Translate lines from standard input to standard output.

    Defaults are those of `evaluation` in the settings of the first run.
    """
    from dataclasses import replace

    from structattn.decoding.seeded_sampling import seeded_sampling
    from structattn.loading.runs import open_run
    from structattn.support.errors import DataError, UsageError
    from structattn.support.progress import progress
    from structattn.tasks.translation.predict import Translation
    from structattn.tasks.translation.translators import make_translator
    from structattn.text.reading import Notices, read_lines

    opened = [open_run(run, checkpoint, data=data) for run in runs]
    given = {
        "search": None if search is None else search.value,
        "beam_size": beam or max(n_best, opened[0].settings.evaluation.beam_size),
        "length_penalty": length_penalty,
        "max_length_ratio": ratio,
        "max_length_offset": extra,
        "max_length": max_length,
        "unknown_words": None if unknown is None else unknown.value,
    }
    how = opened[0].settings.evaluation.changed({name: value for name, value in given.items() if value is not None})
    translator = make_translator(opened, how, precision.value)
    sampling = seeded_sampling(temperature, top_k, top_p, seed)
    if sampling is not None:
        if any(given is not None for given in (search, beam, length_penalty)):
            raise UsageError(
                "--search, --beam and --length-penalty are for beam search; --temperature, --top-k and --top-p for "
                "sampling; expected options of one kind"
            )
        translator = replace(translator, sampling=sampling)
    elif n_best > how.beam_size:
        raise UsageError(f"--n-best {n_best} is more than --beam {how.beam_size}")

    def output_lines(number: int, found: list[Translation]) -> str:
        if n_best == 1:
            return (found[0].text if found else "") + "\n"
        return "".join(f"{number}\t{each.score:.6f}\t{each.text}\n" for each in found)

    lines, done = standard_input_lines(), 0
    beginnings = None if prefixes is None else (line.text for line in read_lines(prefixes, Notices()))
    paths = (STANDARD_INPUT, prefixes or STANDARD_INPUT)
    with progress("Translating", None, "lines") as advance:
        while chunk := list(islice(lines, LINES_AT_ONCE)):
            begun = None if beginnings is None else list(islice(beginnings, len(chunk)))
            found = translator(chunk, n_best, advance, done + 1, begun, paths)
            for number, translations in enumerate(found, start=done + 1):
                if json:
                    print_json({"translations": translations})
                else:
                    sys.stdout.write(output_lines(number, translations))
            sys.stdout.flush()
            done += len(chunk)
    if prefixes is not None and beginnings is not None and next(beginnings, None) is not None:
        raise DataError(prefixes, f"has more lines than the {done} lines to translate", done + 1)
