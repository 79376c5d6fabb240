"""Parallel text for translation."""

from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.preparation.options import Level, Marker, Output, Workers
from structattn.cli.preparation.summary import print_summary
from structattn.support.reading import MAX_INTEGER


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
    level: Annotated[Level, typer.Option(help="Unit of tokens; the first three need the extra mt.")] = Level.bpe,
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
    from structattn.support.processes import available_cores
    from structattn.tasks.translation.filters import Filters
    from structattn.tasks.translation.prepare import prepare_parallel
    from structattn.tasks.translation.tokenizer_training import TokenizerSettings
    from structattn.text.normalization import Normalization

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
