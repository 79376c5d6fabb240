"""``structattn prepare``: a language, a transduction, recognition, a transformation, text, parallel text, or trees."""

from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.options import add_command
from structattn.cli.prepare_text import parallel, text, trees
from structattn.cli.prepared_summary import Output, Seed, print_language, print_summary
from structattn.settings.choices import PairLayout, Protocol, TransformationName, Variant

TrainLengths = Annotated[
    tuple[int, int], typer.Option(metavar="MIN MAX", help="Minimal and maximal length of training strings.")
]
TestLengths = Annotated[
    tuple[int, int], typer.Option(metavar="MIN MAX", help="Minimal and maximal length of test strings.")
]
LanguageName = Annotated[
    str,
    typer.Argument(
        metavar="NAME_OR_FILE",
        help="A language of `structattn list`, or a file: grammar .cfg, automaton .fsa, expression .regex.",
    ),
]


def formal_language(
    name: LanguageName,
    *,
    output: Output,
    variant: Annotated[
        Variant, typer.Option(help="The grammar as published, or as the authors' code transforms it (reference).")
    ] = "faithful",
    seed: Seed = 1,
    train: Annotated[int, typer.Option(min=1, metavar="N", help="Number of training strings.")] = 10_000,
    valid: Annotated[int, typer.Option(min=1, metavar="N", help="Number of validation strings.")] = 1_000,
    test_per_length: Annotated[int, typer.Option(min=1, metavar="N", help="Test strings of each length.")] = 100,
    train_lengths: TrainLengths = (40, 80),
    test_lengths: TestLengths = (40, 100),
    short: Annotated[
        tuple[int, int, int],
        typer.Option(metavar="N MIN MAX", help="N further training strings of these lengths, for training.curriculum."),
    ] = (0, 1, 11),
) -> None:
    """Sample strings of a formal language, with their exact probabilities.

    Examples:
        structattn prepare formal-language dyck -o data/dyck
        structattn prepare formal-language dyck --train-lengths 10 30 -o data/short
        structattn prepare formal-language grammar.cfg -o data/mine
    """
    from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language

    sizes = FormalLanguageSizes(
        train, valid, test_per_length, train_lengths, test_lengths, short=short[0], short_lengths=short[1:]
    )
    prepare_formal_language(output, name, variant, seed=seed, sizes=sizes)
    print_summary(output)
    print_language(output)


def transduction(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the transduction; see `structattn list`.")],
    *,
    output: Output,
    seed: Seed = 1,
    train_lengths: TrainLengths = (1, 40),
    test_lengths: TestLengths = (41, 100),
    valid_per_length: Annotated[int, typer.Option(min=1, metavar="N", help="Validation pairs of each length.")] = 16,
    test_per_length: Annotated[int, typer.Option(min=1, metavar="N", help="Test pairs of each length.")] = 512,
) -> None:
    """Sample validation and test pairs of a transduction; training pairs are sampled during training.

    Examples:
        structattn prepare transduction reverse-string -o data/reverse
    """
    from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction

    sizes = TransductionSizes(train_lengths, test_lengths, valid_per_length, test_per_length)
    prepare_transduction(output, name, seed=seed, sizes=sizes)
    print_summary(output)


def recognition(
    name: LanguageName,
    *,
    output: Output,
    protocol: Annotated[
        Protocol,
        typer.Option(help="Strings as FLaRe draws them, or well-shaped negatives at the lengths of members (hard)."),
    ] = "flare",
    seed: Seed = 1,
    train: Annotated[int, typer.Option(min=1, metavar="N", help="Number of training strings.")] = 10_000,
    valid: Annotated[int, typer.Option(min=1, metavar="N", help="Strings of each validation split.")] = 1_000,
    test: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Test strings; in hard, of each length.  [default: 5010; 20]")
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, metavar="N", help="Maximal length in training.")] = 40,
    max_length_long: Annotated[int, typer.Option(min=1, metavar="N", help="Maximal length in valid-long.")] = 80,
    max_length_test: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximal length of test strings.  [default: 500; in hard 200]"),
    ] = None,
) -> None:
    """Sample labelled strings, to train a model that decides whether they belong to a formal language.

    Examples:
        structattn prepare recognition parity -o data/parity
        structattn prepare recognition marked-copy --protocol hard -o data/copy
        structattn prepare recognition grammar.cfg --protocol hard -o data/mine
    """
    from structattn.tasks.recognition.prepare import RecognitionSizes, prepare_recognition

    sizes = RecognitionSizes(train, valid, test, max_length, max_length_long, max_length_test)
    prepare_recognition(output, name, protocol, seed=seed, sizes=sizes)
    print_summary(output)


def transformation(
    name: Annotated[TransformationName, typer.Argument(help="Question formation, or tense reinflection.")],
    *,
    output: Output,
    published: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder with NAME.dev, NAME.test, NAME.gen.  [default: draw these sets]"),
    ] = None,
    layout: Annotated[
        PairLayout, typer.Option(help="Source and target as one sentence, or pairs for an encoder-decoder.")
    ] = "sentences",
    seed: Seed = 1,
    train: Annotated[int, typer.Option(min=1, metavar="N", help="Number of training pairs.")] = 100_000,
    valid: Annotated[int, typer.Option(min=1, metavar="N", help="Validation pairs, where drawn.")] = 1_000,
    test: Annotated[int, typer.Option(min=1, metavar="N", help="Test pairs, where drawn.")] = 10_000,
    gen: Annotated[int, typer.Option(min=1, metavar="N", help="Generalisation pairs, where drawn.")] = 10_000,
) -> None:
    """Draw pairs that fit a hierarchical and a linear rule of transformation, and pairs on which the rules differ.

    Examples:
        structattn prepare transformation question -o data/question
    """
    from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation

    sizes = TransformationSizes(train, valid, test, gen)
    prepare_transformation(output, name, published=published, layout=layout, seed=seed, sizes=sizes)
    print_summary(output)


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Prepare data: a formal language, recognition, a transduction or transformation, text, parallel text, trees.",
)
for _command in (formal_language, transduction, recognition, transformation, text, parallel, trees):
    add_command(app, _command.__name__.replace("_", "-"), _command)
