"""``structattn export``: write a trained model in the format of another library."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.options import Checkpoint, PreparedData
from structattn.cli.output import print_line


class Format(StrEnum):
    """Formats of export."""

    safetensors = "safetensors"
    huggingface = "huggingface"
    onnx = "onnx"
    ctranslate2 = "ctranslate2"


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    folder: Annotated[Path, typer.Argument(help="New folder to write.")],
    to: Annotated[Format, typer.Option(help="Format.")],
    license_name: Annotated[
        str,
        typer.Option("--license", help="Licence of the weights for the model card, as the Hugging Face hub names it."),
    ] = "unknown",
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Write a trained model with its tokenizer and a model card in the format of another library."""
    import torch

    from structattn.interop.export.formats import export_run
    from structattn.loading.runs import open_run

    export_run(open_run(run, checkpoint, data=data, device=torch.device("cpu")), to.value, folder, license_name)
    print_line(str(folder))
