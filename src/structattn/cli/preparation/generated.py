"""Data that is drawn: strings of a formal language, pairs of a transduction, pairs of a transformation."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.preparation.options import Output
from structattn.cli.preparation.summary import print_summary
from structattn.support.reading import MAX_INTEGER


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
    short: Annotated[
        int, typer.Option(min=0, help="Number of further, short training strings, for training.curriculum.")
    ] = 0,
    short_lengths: Annotated[tuple[int, int], typer.Option(help="Minimal and maximal length of these.")] = (1, 11),
) -> None:
    """Sample strings of a formal language, with their exact probabilities."""
    from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language

    sizes = FormalLanguageSizes(
        train, valid, test_per_length, train_lengths, test_lengths, short=short, short_lengths=short_lengths
    )
    prepare_formal_language(output, name, variant.value, seed=seed, sizes=sizes)
    print_summary(output)


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
    from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction

    sizes = TransductionSizes(train_lengths, test_lengths, valid_per_length, test_per_length)
    prepare_transduction(output, name, seed=seed, sizes=sizes)
    print_summary(output)


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
    from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation

    sizes = TransformationSizes(train, valid, test, gen)
    prepare_transformation(output, name.value, published=published, layout=layout.value, seed=seed, sizes=sizes)
    print_summary(output)
