"""``structattn extract``: read the stack of a run out as an automaton and a grammar, and check both."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import Json, Run, open_one_run
from structattn.cli.output import literal, numbers_table, print_json, print_line, print_table
from structattn.support.reading import MAX_INTEGER

if TYPE_CHECKING:
    from structattn.extraction.pipeline import Extraction


def extract(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the files.")] = Path(
        "extract"
    ),
    layer: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Layer of the stack, from 0.  [default: the only one]")
    ] = None,
    strings: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of strings that the model samples.  [default: by their length]"),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(metavar="P", help="Symbols of a higher probability can follow.  [default: the widest gap]"),
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=1, metavar="N", help="Compare languages on all strings of up to N symbols, or fewer.")
    ] = 40,
    seed: Annotated[int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed of the samples.")] = 0,
    json: Json = False,
) -> None:
    """Read the stack of a run out as an automaton and a grammar, and check both.

    The model samples strings; the best run of each of their prefixes shows which transitions the stack makes. They are
    an automaton, of which a grammar follows. Where it does not agree with the model, a visibly pushdown automaton is
    learned, with the pushes and pops of the stack as calls and returns. The verdict is one of three: exact, as far as
    all short strings can tell; an automaton that agrees with the model and not with the language of the data; or no
    automaton agrees, with the reason. The folder gets automaton.json, grammar.cfg, which prepare formal-language reads,
    automaton.svg and extract.html; the run folder gets analyses/extraction.json, which sweeps and reports read.

    Examples:
        structattn extract demo/stack-transformer
        structattn extract demo/stack-transformer --json
    """
    from structattn.extraction.files import extraction_to_json, require_folder, write_extraction
    from structattn.extraction.pipeline import ExtractionSettings
    from structattn.extraction.pipeline import extract as extracted

    require_folder(output)
    settings = ExtractionSettings(layer, strings, tau, max_length=max_length, seed=seed)
    opened = open_one_run(run, writes="analyses")
    extraction = extracted(opened, settings)
    *_, page = write_extraction(opened, extraction, output)
    if json:
        print_json(extraction_to_json(opened, extraction))
    else:
        _print(extraction)
    print_line(str(page), error=json)


def _print(extraction: "Extraction") -> None:
    from structattn.extraction.page import ALGORITHMS, agreement_rows, causal_rows

    print_line(f"{extraction.verdict.kind}: {'; '.join(extraction.verdict.reasons)}")
    if extraction.minimal is not None:
        automaton = extraction.minimal.automaton
        choices = automaton.num_choices
        places = "1 place" if choices == 1 else f"{choices} places"
        kind = "deterministic" if automaton.is_deterministic else f"nondeterministic in {places}"
        sizes = f"{len(automaton.controls)} controls, {len(automaton.items)} stack items"
        print_line(f"{sizes}, {len(automaton.transitions)} transitions; {kind}")
        print_line(f"  algorithm: {ALGORITHMS[extraction.algorithm]}")
        for line in (extraction.minimal.text or extraction.minimal.without_text).splitlines():
            print_line(f"  {line}")
    table = numbers_table(["the same symbols can follow"], ["trained lengths", "short prefixes"])
    for row in agreement_rows(extraction):
        table.add_row(*map(literal, row))
    print_table(table)
    table = numbers_table(["stack, on validation strings"], ["nats per token"])
    for each in causal_rows(extraction):
        table.add_row(*map(literal, each))
    print_table(table)
