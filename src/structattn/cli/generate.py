"""``structattn generate``: texts from language models, strings of formal languages."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.lines import STANDARD_INPUT, is_terminal_or_null, standard_input_lines
from structattn.cli.options import Checkpoint, JsonLines, PreparedData
from structattn.cli.output import print_json

if TYPE_CHECKING:
    from structattn.tasks.language_modeling.generator import Generation

GIVEN_PROMPTS = Path("--prompt")


def generate(
    run: Annotated[Path, typer.Argument(help="Run folder of a language model of text or of a formal language.")],
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="Beginning of the texts, repeatable.  \\[default: the lines of standard input]"),
    ] = None,
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of texts for each prompt.")] = 1,
    temperature: Annotated[
        float,
        typer.Option(min=0, help="Logits are divided by it: values below 1 sharpen, 0 takes the likeliest token."),
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Sample from the smallest set of tokens with this total probability."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Search for the most likely texts with a beam of this size.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(help="Random seed; a text depends on it, the prompt, and the indices of prompt and sample."),
    ] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="String at which a text ends, repeatable.")] = None,
    max_length: Annotated[
        int, typer.Option(min=1, help="Maximal number of tokens of a text, not counting its prompt.")
    ] = 500,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of texts generated at once.")] = 64,
    json: JsonLines = False,
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Write texts, one per line, each with its prompt; sampled unless --beam is given.

    Prompts are those of --prompt, else the lines of standard input; on a terminal, texts have no prompt. A string of a
    formal language is followed by a tab and by whether it belongs to the language, unless it was cut: yes or no.
    """
    from structattn.loading.runs import open_run
    from structattn.support.progress import progress
    from structattn.tasks.language_modeling.generator import GenerationSettings
    from structattn.tasks.registry import kind_of
    from structattn.tasks.streams import in_chunks

    opened = open_run(run, checkpoint, data=data)
    settings = GenerationSettings(n, temperature, top_k, top_p, beam, seed, tuple(stop or ()), max_length, batch_size)
    generator = kind_of(opened).generator(opened, settings)
    with progress("Generating", None, "texts") as advance:
        given = prompt or ([""] if is_terminal_or_null() else None)
        prompts, path = (standard_input_lines(), STANDARD_INPUT) if given is None else (given, GIVEN_PROMPTS)
        for texts in in_chunks(prompts, partial(generator, path=path, advance=advance)):
            for each in texts:
                if json:
                    print_json(each)
                else:
                    sys.stdout.write(_line(each))
            sys.stdout.flush()


def _line(found: "Generation") -> str:
    verdict = {None: "", True: "\tyes", False: "\tno"}[found.in_language]
    return found.text.replace("\n", "\\n") + verdict + "\n"
