"""``structattn prepare``: a formal language, a transduction, text, or parallel text, to a prepared folder."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from structattn.data.folders.prepared import PreparedFolder

app = typer.Typer(no_args_is_help=True, help="Make a prepared folder from a formal language, a transduction, or text.")

Output = Annotated[Path, typer.Option("--output", "-o", help="The prepared folder to make.")]


class Reading(StrEnum):
    """The two readings of a grammar."""

    faithful = "faithful"
    reference = "reference"


class Level(StrEnum):
    """What a symbol is."""

    word = "word"
    character = "character"
    byte = "byte"


class PairLevel(StrEnum):
    """What a symbol of parallel text is."""

    bpe = "bpe"
    sentencepiece_bpe = "sentencepiece-bpe"
    sentencepiece_unigram = "sentencepiece-unigram"
    word = "word"
    character = "character"
    byte = "byte"


class Marker(StrEnum):
    """How pieces tell where words end."""

    end = "end"
    start = "start"
    continuation = "continuation"
    none = "none"


class Mode(StrEnum):
    """What an example is."""

    sentences = "sentences"
    stream = "stream"


@app.command("formal-language")
def formal_language(
    name: Annotated[str, typer.Argument(help="The language; `structattn list` shows them.")],
    *,
    output: Output,
    reading: Annotated[
        Reading, typer.Option(help="The grammar as stated, or as transformed by the code behind published numbers.")
    ] = Reading.faithful,
    seed: Annotated[int, typer.Option(min=0, help="Of the training and validation strings.")] = 1,
    train: Annotated[int, typer.Option(min=1, help="Training strings.")] = 10_000,
    valid: Annotated[int, typer.Option(min=1, help="Validation strings.")] = 1_000,
    test_per_length: Annotated[int, typer.Option(min=1, help="Test strings of each length.")] = 100,
    train_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (40, 80),
    test_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (40, 100),
) -> None:
    """Draw strings of a formal language, with their exact probabilities."""
    from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language

    sizes = FormalLanguageSizes(train, valid, test_per_length, train_lengths, test_lengths)
    prepare_formal_language(output, name, reading.value, seed=seed, sizes=sizes)
    tell(output)


@app.command("transduction")
def transduction(
    name: Annotated[str, typer.Argument(help="The transduction; `structattn list` shows them.")],
    *,
    output: Output,
    seed: Annotated[int, typer.Option(min=0, help="Of the validation pairs.")] = 1,
    train_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (1, 40),
    test_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (41, 100),
    valid_per_length: Annotated[int, typer.Option(min=1, help="Validation pairs of each length.")] = 16,
    test_per_length: Annotated[int, typer.Option(min=1, help="Test pairs of each length.")] = 512,
) -> None:
    """Draw pairs of strings to validate and test with; training pairs are made on the fly."""
    from structattn.data.transductions.prepare import TransductionSizes, prepare_transduction

    sizes = TransductionSizes(train_lengths, test_lengths, valid_per_length, test_per_length)
    prepare_transduction(output, name, seed=seed, sizes=sizes)
    tell(output)


@app.command("text")
def text(
    *,
    train: Annotated[Path, typer.Option(help="Training text, UTF-8, one sequence a line; .gz is decompressed.")],
    valid: Annotated[Path, typer.Option(help="Validation text.")],
    output: Output,
    test: Annotated[Path | None, typer.Option(help="Test text.")] = None,
    level: Annotated[Level, typer.Option(help="What a symbol is.")] = Level.word,
    mode: Annotated[Mode, typer.Option(help="Each line an example, or all lines one stream.")] = Mode.sentences,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Drop empty lines, refused otherwise.")] = False,
    min_count: Annotated[int, typer.Option(min=1, help="Rarer training symbols become <unk>.")] = 1,
    max_symbols: Annotated[int | None, typer.Option(min=1, help="Number only the commonest symbols.")] = None,
) -> None:
    """Check text strictly and number its symbols."""
    from structattn.data.text.prepare import prepare_language_modeling

    prepare_language_modeling(
        output,
        train,
        valid,
        test,
        level=level.value,
        mode=mode.value,
        skip_empty=skip_empty,
        min_count=min_count,
        max_symbols=max_symbols,
    )
    tell(output)


@app.command("parallel")
def parallel(
    *,
    output: Output,
    train: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Training text, source and target: two files, line for line; .gz is decompressed."),
    ] = None,
    valid: Annotated[tuple[Path, Path] | None, typer.Option(help="Validation text, source and target.")] = None,
    test: Annotated[tuple[Path, Path] | None, typer.Option(help="Test text, source and target.")] = None,
    train_tsv: Annotated[
        Path | None, typer.Option(help="Training text in one file, source TAB target; - is standard input.")
    ] = None,
    valid_tsv: Annotated[Path | None, typer.Option(help="Validation text in one file.")] = None,
    test_tsv: Annotated[Path | None, typer.Option(help="Test text in one file.")] = None,
    level: Annotated[
        PairLevel, typer.Option(help="What a symbol is; the first three need pip install 'structattn\\[mt]'.")
    ] = PairLevel.bpe,
    joint: Annotated[bool, typer.Option(help="One set of subwords and one vocabulary for both sides.")] = True,
    size: Annotated[int, typer.Option(min=0, help="Merges to learn (bpe), or pieces (sentencepiece).")] = 32_000,
    threshold: Annotated[
        int, typer.Option(min=0, help="Subwords rarer than this on a side are parted there; words become <unk>.")
    ] = 0,
    marker: Annotated[Marker, typer.Option(help="How bpe tells where words end.")] = Marker.end,
    nfkc: Annotated[bool, typer.Option(help="Put text into Unicode's NFKC first.")] = True,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Make all letters small.")] = False,
    max_characters: Annotated[int | None, typer.Option(min=1, help="Drop pairs with a longer side.")] = None,
    max_ratio: Annotated[
        float | None, typer.Option(min=1, help="Drop training pairs with a side that many times as long as the other.")
    ] = None,
    drop_full_stops: Annotated[
        bool, typer.Option("--drop-full-stops", help="Drop pairs of which a side is a full stop alone.")
    ] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Keep so many training pairs, drawn at random.")] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            help="Take this share of the training pairs for validation, and as much for a test, where those are not "
            "given; pairs with the same source line stay together."
        ),
    ] = None,
    sample_seed: Annotated[int, typer.Option(min=0, help="Of that sample, and of what is held out.")] = 123,
) -> None:
    """Check parallel text strictly, learn subwords, and number them; a pair is kept or dropped whole."""
    from structattn.data.parallel.filters import Filters
    from structattn.data.parallel.normalization import Normalization
    from structattn.data.parallel.prepare import prepare_parallel
    from structattn.data.parallel.tokenizer_training import Coding

    given = {"train": (train, train_tsv), "valid": (valid, valid_tsv), "test": (test, test_tsv)}
    splits = {name: files for name, (two, table) in given.items() if (files := _files(name, two, table))}
    prepare_parallel(
        output,
        splits,
        hold_out=_held_out(splits, hold_out),
        coding=Coding(level.value, joint, size, threshold, marker.value),
        filters=Filters(max_characters, max_ratio, drop_full_stops, sample, sample_seed),
        normalization=Normalization(nfkc, lowercase),
    )
    tell(output)


def _files(name: str, two: tuple[Path, Path] | None, table: Path | None) -> tuple[Path, ...]:
    from structattn.support.errors import UsageError

    if two is not None and table is not None:
        raise UsageError(f"--{name} and --{name}-tsv are both given; one of them says where the pairs are")
    if two is None and table is None and name == "train":
        raise UsageError("there is neither --train nor --train-tsv; one of them says where the pairs are")
    return two or (() if table is None else (table,))


def _held_out(splits: dict[str, tuple[Path, ...]], share: float | None) -> dict[str, float]:
    """The share of each split that is not given."""
    from structattn.support.errors import UsageError

    missing = [name for name in ("valid", "test") if name not in splits]
    if share is None and "valid" in missing:
        raise UsageError(
            "there is neither --valid nor --valid-tsv; one of them says where the pairs are, or --hold-out 0.02 takes "
            "some of the training pairs"
        )
    if share is not None and not missing:
        raise UsageError("--hold-out has nothing to do: validation and test are both given")
    return {} if share is None else dict.fromkeys(missing, share)


def tell(folder: Path) -> None:
    """Print what a prepared folder holds."""
    from rich.console import Console
    from rich.markup import escape

    from structattn.data.folders.prepared import open_prepared

    prepared = open_prepared(folder)
    parallel = prepared.languages is not None
    splits = ", ".join(
        _pairs(prepared, name) if parallel else f"{name} {counts.sequences:,} sequences of {counts.tokens:,} tokens"
        for name, counts in prepared.header.splits.items()
    )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(str(folder))}[/]: {prepared.kind}, {_symbols(prepared)}; {splits}")


def _pairs(prepared: "PreparedFolder", name: str) -> str:
    pairs = prepared.pairs(name)
    tokens = f"{pairs.source.token_count:,} and {pairs.target.token_count:,} tokens"
    return f"{name} {len(pairs):,} pairs of {tokens}"


def _symbols(prepared: "PreparedFolder") -> str:
    sides = prepared.languages
    if sides is None or sides.joint:
        return f"{prepared.vocabulary.size} symbols"
    return f"{sides.source.vocabulary.size} source and {sides.target.vocabulary.size} target symbols"
