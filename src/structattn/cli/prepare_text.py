"""The commands of ``structattn prepare`` that read texts: text, parallel text, and trees."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.prepared_summary import Output, Seed, print_summary
from structattn.settings.choices import Level, Marker, PairLayout, TextMode, TreeTags
from structattn.support.errors import UsageError

Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Worker processes.  [default: one for each core]")
]
Pieces = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Merges (bpe) or pieces to learn.  [default: one for each 100 words]"),
]
Threshold = Annotated[
    int, typer.Option(min=0, metavar="N", help="Words seen less often become <unk>, such subwords are split.")
]
BoundaryMarker = Annotated[
    Marker, typer.Option("--marker", metavar="MARKER", help="Word boundaries of bpe: end, start, continuation, none.")
]
TokenLevel = Annotated[
    Level,
    typer.Option(
        "--level",
        metavar="LEVEL",
        help="word, character, byte; with the extra mt, bpe, sentencepiece-bpe, sentencepiece-unigram.",
    ),
]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Convert text to lower case.")]


def text(
    *,
    train: Annotated[
        Path, typer.Option(metavar="FILE", help="Training text, a sequence per line; .gz is decompressed.")
    ],
    output: Output,
    valid: Annotated[Path | None, typer.Option(metavar="FILE", help="Validation text.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Test text.")] = None,
    hold_out: Annotated[
        float | None, typer.Option(metavar="F", help="Fraction of training lines for each split not given.")
    ] = None,
    level: TokenLevel = "word",
    mode: Annotated[
        TextMode | None,
        typer.Option(help="Each line is an example, or all form a stream.  [default: stream if lines are wrapped]"),
    ] = None,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Drop empty lines, which are refused else.")] = False,
    min_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Symbols seen less often become <unk>, such subwords are split.")
    ] = 1,
    max_symbols: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep only the most frequent symbols.")
    ] = None,
    vocabulary_size: Pieces = None,
    marker: BoundaryMarker = "end",
    unknown_classes: Annotated[
        bool, typer.Option("--unknown-classes", help="Words seen once become classes, such as UNK-LC-ing.")
    ] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A Hugging Face tokenizer (tokenizer.json), for a level.")
    ] = None,
    block_length: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stream: cut every 1,000 lines to whole blocks of N tokens.")
    ] = None,
    nfkc: Annotated[bool, typer.Option("--nfkc", help="Normalize text to Unicode NFKC.")] = False,
    lowercase: Lowercase = False,
    workers: Workers = None,
) -> None:
    """Validate text, build a vocabulary or learn subwords, and encode the text.

    Examples:
        structattn prepare text --train a.txt --valid b.txt --mode stream -o data/a
    """
    from structattn.support.processes import available_cores
    from structattn.tasks.language_modeling.prepare import prepare_language_modeling
    from structattn.tasks.language_modeling.settings import TextSettings

    if tokenizer is not None and level != "word":
        raise UsageError(f"--tokenizer {tokenizer} takes the place of a level; expected no --level {level}")
    _require_subwords(level, vocabulary_size, "--max-symbols", marker)
    settings = TextSettings(
        level if tokenizer is None else "pretrained",
        mode,
        skip_empty,
        min_count=min_count,
        max_symbols=max_symbols,
        vocabulary_size=vocabulary_size,
        marker=marker,
        unknown_classes=unknown_classes,
        tokenizer=None if tokenizer is None else str(tokenizer),
        block_length=block_length,
        nfkc=nfkc,
        lowercase=lowercase,
    )
    if valid is None and hold_out is None:
        raise UsageError("--valid is not given; expected it, or --hold-out 0.02 to hold out some of the training text")
    missing = [name for name, path in (("valid", valid), ("test", test)) if path is None]
    if hold_out is not None and not missing:
        raise UsageError("--hold-out has no effect: validation and test data are both given")
    shares = {} if hold_out is None else dict.fromkeys(missing, hold_out)
    cores = workers or available_cores()
    prepare_language_modeling(output, train, valid, test, settings, hold_out=shares, workers=cores)
    print_summary(output)


def _two_files(
    context: typer.Context, option: typer.CallbackParam, value: tuple[Path, Path] | None
) -> tuple[Path, Path] | None:
    """Refuse an option of two files that has one, and takes the name of the next option for the other."""
    names = {name for each in context.command.params for name in each.opts}
    if value is not None and not names.isdisjoint(map(str, value)):
        raise UsageError(f"{option.opts[0]} {value[0]} {value[1]}: expected two files, source and target")
    return value


TwoFiles = partial(typer.Option, metavar="SOURCE TARGET", callback=_two_files, is_eager=True)


def parallel(
    *,
    output: Output,
    train: Annotated[
        tuple[Path, Path] | None,
        TwoFiles(help="Training text, two files, line for line; .gz is decompressed."),
    ] = None,
    valid: Annotated[tuple[Path, Path] | None, TwoFiles(help="Validation text.")] = None,
    test: Annotated[tuple[Path, Path] | None, TwoFiles(help="Test text.")] = None,
    train_tsv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One file of source TAB target; - is standard input.")
    ] = None,
    valid_tsv: Annotated[Path | None, typer.Option(metavar="FILE", help="The same, validation.")] = None,
    test_tsv: Annotated[Path | None, typer.Option(metavar="FILE", help="The same, test.")] = None,
    level: TokenLevel = "bpe",
    joint: Annotated[bool, typer.Option(help="One vocabulary for both sides.")] = True,
    vocabulary_size: Pieces = None,
    vocabulary_threshold: Threshold = 0,
    marker: BoundaryMarker = "end",
    nfkc: Annotated[bool, typer.Option(help="Normalize text to Unicode NFKC.")] = True,
    lowercase: Lowercase = False,
    max_characters: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Drop pairs with a longer side.")
    ] = None,
    max_ratio: Annotated[
        float | None, typer.Option(min=1, metavar="R", help="Drop training pairs with a greater ratio of lengths.")
    ] = None,
    drop_full_stops: Annotated[
        bool, typer.Option("--drop-full-stops", help="Drop pairs with a side that is a full stop.")
    ] = False,
    sample: Annotated[int | None, typer.Option(min=1, metavar="N", help="Keep N random training pairs.")] = None,
    hold_out: Annotated[
        float | None, typer.Option(metavar="F", help="Fraction of training pairs for each split not given.")
    ] = None,
    seed: Seed = 123,
    workers: Workers = None,
) -> None:
    """Validate parallel text, learn subwords, and encode the pairs.

    Held-out pairs with the same source line stay together.

    Examples:
        structattn prepare parallel --train a.de a.en --hold-out 0.02 -o data/mt
    """
    from structattn.support.processes import available_cores
    from structattn.tasks.translation.filters import Filters
    from structattn.tasks.translation.prepare import prepare_parallel
    from structattn.tasks.translation.tokenizer_training import TokenizerSettings
    from structattn.text.lines import Normalization

    _require_subwords(level, vocabulary_size, "--vocabulary-threshold", marker)
    given = {"train": (train, train_tsv), "valid": (valid, valid_tsv), "test": (test, test_tsv)}
    splits = {name: files for name, (two, tsv) in given.items() if (files := _files(name, two, tsv))}
    prepare_parallel(
        output,
        splits,
        hold_out=_held_out(splits, hold_out),
        tokenizer=TokenizerSettings(level, joint, vocabulary_size, vocabulary_threshold, marker),
        filters=Filters(max_characters, max_ratio, drop_full_stops, sample, seed),
        normalization=Normalization(nfkc, lowercase),
        workers=workers or available_cores(),
    )
    print_summary(output)


def _require_subwords(level: str, vocabulary_size: int | None, alternative: str, marker: str = "end") -> None:
    if level in ("word", "character", "byte") and vocabulary_size is not None:
        raise UsageError(f"--vocabulary-size applies to subwords, not to --level {level}; see {alternative}")
    if level != "bpe" and marker != "end":
        raise UsageError(f"--marker {marker} applies to bpe, not to --level {level}")


def _files(name: str, files: tuple[Path, Path] | None, tsv: Path | None) -> tuple[Path, ...]:
    if files is not None and tsv is not None:
        raise UsageError(f"--{name} and --{name}-tsv are both given; expected one of them")
    if files is None and tsv is None and name == "train":
        raise UsageError("neither --train nor --train-tsv is given; expected one of them")
    return files or (() if tsv is None else (tsv,))


def _held_out(splits: dict[str, tuple[Path, ...]], share: float | None) -> dict[str, float]:
    """Return the fraction to hold out for each split that is not given."""
    missing = [name for name in ("valid", "test") if name not in splits]
    if share is None and "valid" in missing:
        raise UsageError(
            "neither --valid nor --valid-tsv is given; expected one of them, or --hold-out 0.02 to hold out some "
            "of the training pairs"
        )
    if share is not None and not missing:
        raise UsageError("--hold-out has no effect: validation and test data are both given")
    return {} if share is None else dict.fromkeys(missing, share)


def trees(
    *,
    output: Output,
    train: Annotated[Path, typer.Option(metavar="FILE", help="Training trees, bracketed: (S (NP (DT the) ...) ...).")],
    valid: Annotated[Path, typer.Option(metavar="FILE", help="Validation trees.")],
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Test trees.")] = None,
    tags: Annotated[
        TreeTags, typer.Option(help="Linearized trees have XX for each word (normalized), or its tag (kept).")
    ] = "normalized",
    layout: Annotated[
        PairLayout, typer.Option(help="Sentences and linearized trees, or sentences with trees for a language model.")
    ] = "parallel",
    level: TokenLevel = "word",
    vocabulary_size: Pieces = None,
    vocabulary_threshold: Threshold = 0,
) -> None:
    """Read constituency trees, and encode each sentence with its tree.

    Traces (-NONE-), functions (NP-SBJ) and the outermost bracket (ROOT, TOP, or none) are dropped.

    Examples:
        structattn prepare trees --train a.trees --valid b.trees -o data/trees
        structattn prepare trees --train a --valid b --layout sentences -o data/text
    """
    from structattn.tasks.parsing.prepare import prepare_trees
    from structattn.tasks.translation.tokenizer_training import TokenizerSettings

    _require_subwords(level, vocabulary_size, "--vocabulary-threshold")
    files = {"train": train, "valid": valid} | ({} if test is None else {"test": test})
    tokenizer = TokenizerSettings(level, False, vocabulary_size, vocabulary_threshold)
    prepare_trees(output, files, tags=tags, tokenizer=tokenizer, layout=layout)
    print_summary(output)
