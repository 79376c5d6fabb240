"""``structattn prepare``: prepare a language, a transduction, a transformation, text, parallel text, or trees."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.support.reading import MAX_INTEGER

if TYPE_CHECKING:
    from structattn.data.folders import PreparedFolder

app = typer.Typer(
    no_args_is_help=True,
    help="Prepare data: a formal language, a transduction, a transformation, text, parallel text, or trees.",
)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the prepared data.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of worker processes.  \\[default: one for each core]")]


class Variant(StrEnum):
    """The two variants of a grammar."""

    faithful = "faithful"
    reference = "reference"


class TransformationName(StrEnum):
    """The tasks of McCoy et al. (2020)."""

    question = "question"
    tense = "tense"


class PairLayout(StrEnum):
    """How pairs of source and target are stored."""

    sentences = "sentences"
    parallel = "parallel"


class Level(StrEnum):
    """The unit of tokens."""

    bpe = "bpe"
    sentencepiece_bpe = "sentencepiece-bpe"
    sentencepiece_unigram = "sentencepiece-unigram"
    word = "word"
    character = "character"
    byte = "byte"


class Marker(StrEnum):
    """How subwords mark word boundaries."""

    end = "end"
    start = "start"
    continuation = "continuation"
    none = "none"


class Mode(StrEnum):
    """How text is split into examples."""

    sentences = "sentences"
    stream = "stream"


class TreeTags(StrEnum):
    """What stands for a word in a linearized tree."""

    normalized = "normalized"
    kept = "kept"


@app.command("formal-language")
def formal_language(
    name: Annotated[str, typer.Argument(help="Name of the language; see `structattn list`.")],
    *,
    output: Output,
    variant: Annotated[
        Variant,
        typer.Option(help="The grammar as published (faithful), or as transformed by the authors' code (reference)."),
    ] = Variant.faithful,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed of the training and validation strings.")
    ] = 1,
    train: Annotated[int, typer.Option(min=1, help="Number of training strings.")] = 10_000,
    valid: Annotated[int, typer.Option(min=1, help="Number of validation strings.")] = 1_000,
    test_per_length: Annotated[int, typer.Option(min=1, help="Number of test strings of each length.")] = 100,
    train_lengths: Annotated[tuple[int, int], typer.Option(help="Minimal and maximal training length.")] = (40, 80),
    test_lengths: Annotated[tuple[int, int], typer.Option(help="Minimal and maximal test length.")] = (40, 100),
) -> None:
    """Sample strings of a formal language, with their exact probabilities."""
    from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language

    sizes = FormalLanguageSizes(train, valid, test_per_length, train_lengths, test_lengths)
    prepare_formal_language(output, name, variant.value, seed=seed, sizes=sizes)
    print_summary(output)


@app.command("transduction")
def transduction(
    name: Annotated[str, typer.Argument(help="Name of the transduction; see `structattn list`.")],
    *,
    output: Output,
    seed: Annotated[int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed of the validation pairs.")] = 1,
    train_lengths: Annotated[tuple[int, int], typer.Option(help="Minimal and maximal training length.")] = (1, 40),
    test_lengths: Annotated[tuple[int, int], typer.Option(help="Minimal and maximal test length.")] = (41, 100),
    valid_per_length: Annotated[int, typer.Option(min=1, help="Number of validation pairs of each length.")] = 16,
    test_per_length: Annotated[int, typer.Option(min=1, help="Number of test pairs of each length.")] = 512,
) -> None:
    """Sample validation and test pairs of a transduction; training pairs are sampled during training."""
    from structattn.data.transductions.prepare import TransductionSizes, prepare_transduction

    sizes = TransductionSizes(train_lengths, test_lengths, valid_per_length, test_per_length)
    prepare_transduction(output, name, seed=seed, sizes=sizes)
    print_summary(output)


@app.command("transformation")
def transformation(
    name: Annotated[TransformationName, typer.Argument(help="question (formation) or tense (reinflection).")],
    *,
    output: Output,
    published: Annotated[
        Path | None,
        typer.Option(help="Folder with the published NAME.dev, NAME.test and NAME.gen.  \\[default: draw these sets]"),
    ] = None,
    layout: Annotated[
        PairLayout, typer.Option(help="Source and target as one sentence, or pairs for an encoder-decoder.")
    ] = PairLayout.sentences,
    seed: Annotated[int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed of the drawn pairs.")] = 1,
    train: Annotated[int, typer.Option(min=1, help="Number of training pairs.")] = 100_000,
    valid: Annotated[int, typer.Option(min=1, help="Number of validation pairs, where drawn.")] = 1_000,
    test: Annotated[int, typer.Option(min=1, help="Number of test pairs, where drawn.")] = 10_000,
    gen: Annotated[int, typer.Option(min=1, help="Number of generalisation pairs, where drawn.")] = 10_000,
) -> None:
    """Draw pairs that fit a hierarchical and a linear rule of transformation, and pairs on which the rules differ."""
    from structattn.data.transformations import TransformationSizes, prepare_transformation

    sizes = TransformationSizes(train, valid, test, gen)
    prepare_transformation(output, name.value, published=published, layout=layout.value, seed=seed, sizes=sizes)
    print_summary(output)


@app.command("text")
def text(
    *,
    train: Annotated[Path, typer.Option(help="Training text, UTF-8, one sequence per line; .gz is decompressed.")],
    valid: Annotated[Path, typer.Option(help="Validation text.")],
    output: Output,
    test: Annotated[Path | None, typer.Option(help="Test text.")] = None,
    level: Annotated[
        Level, typer.Option(help="Unit of tokens; the first three need pip install 'structattn\\[mt]'.")
    ] = Level.word,
    mode: Annotated[Mode, typer.Option(help="Each line is an example, or all lines form one stream.")] = Mode.sentences,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Drop empty lines instead of refusing them.")
    ] = False,
    min_count: Annotated[
        int,
        typer.Option(min=1, help="Symbols with fewer training occurrences become <unk>; such subwords are split."),
    ] = 1,
    max_symbols: Annotated[
        int | None, typer.Option(min=1, help="Keep only the most frequent symbols in the vocabulary.")
    ] = None,
    vocabulary_size: Annotated[
        int, typer.Option(min=1, help="Number of merges (bpe) or pieces (sentencepiece) to learn.")
    ] = 32_000,
    marker: Annotated[Marker, typer.Option(help="How bpe marks word boundaries.")] = Marker.end,
    unknown_classes: Annotated[
        bool,
        typer.Option(
            "--unknown-classes", help="Words seen once become classes by shape and suffix, such as UNK-LC-ing."
        ),
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Local folder of a Hugging Face tokenizer (tokenizer.json) to apply instead of a level."),
    ] = None,
    block_length: Annotated[
        int | None,
        typer.Option(
            min=1, help="In a stream, cut the end off every 1,000 lines, so that the rest makes whole blocks."
        ),
    ] = None,
    nfkc: Annotated[bool, typer.Option("--nfkc", help="Normalize text to Unicode NFKC.")] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Convert text to lower case.")] = False,
    workers: Workers = None,
) -> None:
    """Validate text, build a vocabulary or learn subwords, and encode the text."""
    from structattn.data.language_modeling import TextSettings, prepare_language_modeling
    from structattn.support.processes import available_cores

    settings = TextSettings(
        level.value if tokenizer is None else "pretrained",
        mode.value,
        skip_empty,
        min_count=min_count,
        max_symbols=max_symbols,
        vocabulary_size=vocabulary_size,
        marker=marker.value,
        unknown_classes=unknown_classes,
        tokenizer=None if tokenizer is None else str(tokenizer),
        block_length=block_length,
        nfkc=nfkc,
        lowercase=lowercase,
    )
    prepare_language_modeling(output, train, valid, test, settings, workers=workers or available_cores())
    print_summary(output)


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
        Level, typer.Option(help="Unit of tokens; the first three need pip install 'structattn\\[mt]'.")
    ] = Level.bpe,
    joint: Annotated[bool, typer.Option(help="One subword model and one vocabulary for both sides.")] = True,
    vocabulary_size: Annotated[
        int, typer.Option(min=0, help="Number of merges (bpe) or pieces (sentencepiece) to learn.")
    ] = 32_000,
    vocabulary_threshold: Annotated[
        int, typer.Option(min=0, help="Subwords less frequent than this on a side are split there; words become <unk>.")
    ] = 0,
    marker: Annotated[Marker, typer.Option(help="How bpe marks word boundaries.")] = Marker.end,
    nfkc: Annotated[bool, typer.Option(help="Normalize text to Unicode NFKC.")] = True,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Convert text to lower case.")] = False,
    max_characters: Annotated[int | None, typer.Option(min=1, help="Drop pairs in which a side is longer.")] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option(
            min=1, help="Drop training pairs in which a side is more than this many times as long as the other."
        ),
    ] = None,
    drop_full_stops: Annotated[
        bool, typer.Option("--drop-full-stops", help="Drop pairs in which a side is a single full stop.")
    ] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Keep a random sample of this many training pairs.")] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            help="Use this fraction of the training pairs for validation, and the same for a test split, if those are "
            "not given; pairs with the same source line stay together."
        ),
    ] = None,
    sample_seed: Annotated[
        int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed of the sample and of the held-out pairs.")
    ] = 123,
    workers: Workers = None,
) -> None:
    """Validate parallel text, learn subwords, and encode the pairs."""
    from structattn.data.parallel.filters import Filters
    from structattn.data.parallel.prepare import prepare_parallel
    from structattn.data.parallel.tokenizer_training import TokenizerSettings
    from structattn.data.text.normalization import Normalization
    from structattn.support.processes import available_cores

    given = {"train": (train, train_tsv), "valid": (valid, valid_tsv), "test": (test, test_tsv)}
    splits = {name: files for name, (two, tsv) in given.items() if (files := _files(name, two, tsv))}
    prepare_parallel(
        output,
        splits,
        hold_out=_held_out(splits, hold_out),
        tokenizer=TokenizerSettings(level.value, joint, vocabulary_size, vocabulary_threshold, marker.value),
        filters=Filters(max_characters, max_ratio, drop_full_stops, sample, sample_seed),
        normalization=Normalization(nfkc, lowercase),
        workers=workers or available_cores(),
    )
    print_summary(output)


@app.command("trees")
def trees(
    *,
    output: Output,
    train: Annotated[Path, typer.Option(help="Training trees, bracketed: (S (NP (DT the) ...) ...).")],
    valid: Annotated[Path, typer.Option(help="Validation trees.")],
    test: Annotated[Path | None, typer.Option(help="Test trees.")] = None,
    tags: Annotated[
        TreeTags, typer.Option(help="Linearized trees have XX for each word (normalized), or its tag (kept).")
    ] = TreeTags.normalized,
    level: Annotated[Level, typer.Option(help="Unit of tokens of the sentences.")] = Level.word,
    vocabulary_size: Annotated[
        int, typer.Option(min=0, help="Number of merges (bpe) or pieces (sentencepiece) to learn.")
    ] = 8_000,
    vocabulary_threshold: Annotated[
        int, typer.Option(min=0, help="Words less frequent than this become <unk>; subwords are split.")
    ] = 0,
) -> None:
    """Read constituency trees, and encode each sentence with its linearized tree, for a parser.

    Traces (-NONE-), functions (NP-SBJ) and the outermost bracket (ROOT, TOP, or none) are dropped.
    """
    from structattn.data.parallel.prepare import prepare_parallel
    from structattn.data.parallel.tokenizer_training import TokenizerSettings
    from structattn.data.text.normalization import Normalization

    files = {"train": (train,), "valid": (valid,)} | ({} if test is None else {"test": (test,)})
    tokenizer = TokenizerSettings(level.value, False, vocabulary_size, vocabulary_threshold)
    prepare_parallel(output, files, tokenizer=tokenizer, normalization=Normalization(nfkc=False), trees=tags.value)
    print_summary(output)


def _files(name: str, files: tuple[Path, Path] | None, tsv: Path | None) -> tuple[Path, ...]:
    from structattn.support.errors import UsageError

    if files is not None and tsv is not None:
        raise UsageError(f"--{name} and --{name}-tsv are both given; expected one of them")
    if files is None and tsv is None and name == "train":
        raise UsageError("neither --train nor --train-tsv is given; expected one of them")
    return files or (() if tsv is None else (tsv,))


def _held_out(splits: dict[str, tuple[Path, ...]], share: float | None) -> dict[str, float]:
    """Return the fraction to hold out for each split that is not given."""
    from structattn.support.errors import UsageError

    missing = [name for name in ("valid", "test") if name not in splits]
    if share is None and "valid" in missing:
        raise UsageError(
            "neither --valid nor --valid-tsv is given; expected one of them, or --hold-out 0.02 to hold out some "
            "of the training pairs"
        )
    if share is not None and not missing:
        raise UsageError("--hold-out has no effect: validation and test data are both given")
    return {} if share is None else dict.fromkeys(missing, share)


def _text(prepared: "PreparedFolder", name: str) -> str:
    from structattn.data.folders.text_statistics import text_statistics, unknown_share

    counts, found, share = prepared.header.splits[name], text_statistics(prepared, name), unknown_share(prepared, name)
    parts = [f"{name} {counts.sequences:,} sequences of {counts.tokens:,} tokens"]
    if found is not None:
        cut, skipped = f"{found.tokens_cut:,} tokens cut off", f"{found.lines_skipped:,} empty lines skipped"
        parts += [cut] * bool(found.tokens_cut) + [skipped] * bool(found.lines_skipped)
    if share is not None:
        parts.append(f"{share:.2%} <unk>")
    return " (".join((parts[0], ", ".join(parts[1:]) + ")")) if parts[1:] else parts[0]


def print_summary(folder: Path) -> None:
    """Print the contents of a prepared folder."""
    from rich.console import Console
    from rich.markup import escape

    from structattn.data.folders import open_prepared
    from structattn.support.text import escape_control_characters

    prepared = open_prepared(folder)
    parallel = prepared.parallel_sides is not None
    splits = ", ".join(_pairs(prepared, name) if parallel else _text(prepared, name) for name in prepared.splits)
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(escape_control_characters(str(folder)))}[/]: {prepared.kind}, {_symbols(prepared)}; {splits}"
    )


def _pairs(prepared: "PreparedFolder", name: str) -> str:
    pairs = prepared.pairs(name)
    tokens = f"{pairs.source.num_tokens:,} and {pairs.target.num_tokens:,} tokens"
    return f"{name} {len(pairs):,} pairs of {tokens}"


def _symbols(prepared: "PreparedFolder") -> str:
    sides = prepared.parallel_sides
    if sides is None or sides.joint:
        return f"{prepared.vocabulary.size} symbols"
    return f"{sides.source.vocabulary.size} source and {sides.target.vocabulary.size} target symbols"
