"""``structattn export``: write a trained model in the format of another library."""

from typing import Annotated, Literal

import typer

from structattn.cli.options import open_one_run, split_overrides
from structattn.cli.output import print_line
from structattn.support.errors import UsageError

Format = Literal["safetensors", "huggingface", "onnx", "ctranslate2"]


def export(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN FOLDER [FIELD=VALUE]...",
            show_default=False,
            help="Run folder; new folder to write; settings that replace the run's: data=, evaluation.checkpoint=.",
        ),
    ],
    to: Annotated[Format, typer.Option(help="Format.")],
    license_name: Annotated[
        str, typer.Option("--license", metavar="NAME", help="Licence of the weights, as the Hugging Face hub names it.")
    ] = "unknown",
) -> None:
    """Write a trained model with its tokenizer and a model card in the format of another library.

    Examples:
        structattn export runs/stack hub --to huggingface --license mit
        structattn export runs/de-en model evaluation.checkpoint=best-3 --to onnx
    """
    import torch

    from structattn.interop.export.formats import export_run

    paths, overrides = split_overrides(words)
    if len(paths) != 2:
        raise UsageError(f"{len(paths)} folders; expected RUN FOLDER")
    run, folder = paths
    opened = open_one_run([str(run), *overrides], torch.device("cpu"))
    export_run(opened, to, folder, license_name)
    print_line(str(folder))
