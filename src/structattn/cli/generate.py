"""``structattn generate``: texts from language models, strings of formal languages."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import (
    STANDARD_INPUT,
    BatchSize,
    JsonLines,
    Run,
    Temperature,
    TopK,
    TopP,
    is_terminal_or_null,
    open_one_run,
    standard_input_lines,
)
from structattn.cli.output import print_results

if TYPE_CHECKING:
    from structattn.tasks.language_modeling.generator import Generation

GIVEN_PROMPTS = Path("--prompt")


def generate(
    run: Run,
    prompt: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Beginning of the texts, repeatable.  [default: lines of standard input]"),
    ] = None,
    n: Annotated[int, typer.Option("-n", "--number", min=1, metavar="N", help="Number of texts for each prompt.")] = 1,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Search for the likeliest texts with N hypotheses.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed; samples are independent of the batch.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="String at which a text ends, repeatable.")
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens of a text at most, without prompt.")
    ] = 500,
    lines: Annotated[int, typer.Option(min=1, metavar="N", help="Lines of a text, for models of streams.")] = 1,
    batch_size: BatchSize = 64,
    json: JsonLines = False,
) -> None:
    """Write texts, one per line, each with its prompt; sampled unless --beam is given.

    Prompts are those of --prompt, else the lines of standard input; on a terminal, texts have no prompt. A string of a
    formal language is followed by a tab and by whether it belongs to the language, unless it was cut: yes or no.

    Examples:
        structattn generate runs/dyck -n 20
        structattn generate runs/stack --prompt "Everyone has" --temperature 0.8
    """
    from structattn.support.progress import progress
    from structattn.tasks.language_modeling.generator import GenerationSettings
    from structattn.tasks.loaded import in_chunks
    from structattn.tasks.registry import kind_of

    opened, temperature = open_one_run(run), 1.0 if temperature is None else temperature
    how = (temperature, top_k, top_p, beam, seed, tuple(stop or ()), max_length, batch_size, lines)
    settings = GenerationSettings(n, *how)
    generator = kind_of(opened).generator(opened, settings)
    with progress("Generating", None, "texts") as advance:
        given = prompt or ([""] if is_terminal_or_null() else None)
        prompts, path = (standard_input_lines(), STANDARD_INPUT) if given is None else (given, GIVEN_PROMPTS)
        for texts in in_chunks(prompts, partial(generator, path=path, advance=advance)):
            print_results(texts, json, _line)
            sys.stdout.flush()


def _line(generation: "Generation") -> str:
    verdict = {None: "", True: "\tyes", False: "\tno"}[generation.in_language]
    return generation.text.replace("\n", "\\n") + verdict + "\n"
