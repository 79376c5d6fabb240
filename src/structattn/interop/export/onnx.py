"""Write a run as an ONNX graph; refuse models that have none, with the names of the parts that prevent it."""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import Dim

from structattn.attention.positions import RelativePositions
from structattn.interop.export.input_form import input_form, max_length, refuse, require_own_tables
from structattn.interop.export.onnx_attention import CROSS_ATTENTION, SELF_ATTENTION
from structattn.interop.export.onnx_graphs import (
    CrossDecoderGraph,
    DecoderGraph,
    EncoderGraph,
    MaskedGraph,
    tensor_shapes,
)
from structattn.interop.export.tokenizer import write_tokenizers
from structattn.loading.trained_run import TrainedRun
from structattn.models import EncoderDecoder, MaskedLanguageModel
from structattn.settings.base import literal_of
from structattn.settings.embeddings import POSITIONS, Sinusoidal
from structattn.settings.transformer import EncoderDecoderSettings, LanguageModelSettings, MaskedLanguageModelSettings
from structattn.support.files import write_unflushed
from structattn.support.imports import require_modules
from structattn.support.special_tokens import BOS, EOS, PAD

FORM = "onnx"
_STEPS = "only softmax, hard and gaussian attention have a graph"


def require_graph(run: TrainedRun) -> None:
    """Check that all parts of a model have a graph.

    Raises:
        UsageError: one has none; the message has its path in the settings.
    """
    require_own_tables(run, FORM)
    settings, model = run.settings.model, run.model
    if getattr(settings, "loops", None) is not None:
        raise refuse(run, FORM, "model.loops", "a graph has one cache for each layer")
    if getattr(settings, "depth_stack", None) is not None:
        raise refuse(run, FORM, "model.depth_stack", _STEPS)
    match settings:
        case EncoderDecoderSettings():
            _require_layers(run, "model.encoder.layers", model.encoder, settings.encoder.layers)
            _require_layers(run, "model.decoder.layers", model.decoder, settings.decoder.layers)
            _require_some_attention(run, "model.decoder.layers", model.decoder)
        case LanguageModelSettings():
            _require_layers(run, "model.layers", model.layers, settings.layers)
            _require_some_attention(run, "model.layers", model.layers)
        case MaskedLanguageModelSettings():
            _require_layers(run, "model.layers", model.layers, settings.layers)
        case _:
            raise refuse(run, FORM, f"model: {settings.kind}", _STEPS)
    positions = settings.positions
    if isinstance(positions, Sinusoidal) and positions.direction == "backward":
        raise refuse(run, FORM, "model.positions: backward", "positions would depend on the end of the text")
    kind = literal_of(type(positions), "kind")
    if kind in POSITIONS.plugins and POSITIONS[kind].scores is not None:
        raise refuse(run, FORM, f"model.positions: {kind}", "expected those of this package, or added ones")


def _require_layers(run: TrainedRun, path: str, layers: Any, settings: Any) -> None:
    for index, (block, layer) in enumerate(zip(layers.blocks, settings, strict=True)):
        if block.stack is not None:
            raise refuse(run, FORM, f"{path}.{index}.stack: {layer.stack.attention}", _STEPS)
        if block.attention is not None and type(block.attention.layer) not in SELF_ATTENTION:
            raise refuse(run, FORM, f"{path}.{index}: {layer.attention}", _STEPS)
        if block.cross is not None and type(block.cross.layer) not in CROSS_ATTENTION:
            raise refuse(run, FORM, f"{path}.{index}: cross-attention", _STEPS)
        if any(isinstance(module, RelativePositions) for module in block.modules()):
            raise refuse(run, FORM, "model.positions: relative", "they depend on all pairs of positions")


def _require_some_attention(run: TrainedRun, path: str, layers: Any) -> None:
    if all(block.attention is None for block in layers.blocks):
        raise refuse(run, FORM, f"{path}: none", "a step counts its positions by the tensors of self-attention")


ENCODER_NAME, DECODER_NAME, CONFIG_NAME = "encoder.onnx", "decoder_step.onnx", "config.json"
_BATCH, _SOURCE, _NEW, _PAST = 2, 3, 5, 4  # sizes of the example, all different
_USAGE: Final = """The files run in onnxruntime; `config.json` names the inputs and outputs of each, in order. `tokens`
are int64 ids. `decoder_step.onnx` takes any number of new tokens after those in the tensors `past`, which have length 0
at first, and returns the logits of the token after each, and `present`, the next `past`. Its inputs `cross` are outputs
of `encoder.onnx`."""


def export_onnx(run: TrainedRun, folder: Path) -> str:
    """Write ``encoder.onnx``, ``decoder_step.onnx``, or both; configuration and tokenizer."""
    require_modules("onnx", "onnx", "onnxscript")
    require_graph(run)
    model: Any = run.model
    maximum = max_length(run)
    write_tokenizers(run, folder)
    if isinstance(model, MaskedLanguageModel):
        graphs = {ENCODER_NAME: _write_encoder(MaskedGraph(model, maximum), ["logits"], folder, maximum)}
    elif isinstance(model, EncoderDecoder):
        decoder = CrossDecoderGraph(model.target, model.decoder, model.logits, maximum)
        source = model.target if model.source is None else model.source
        blocks: list[Any] = list(decoder.blocks)
        encoder = EncoderGraph(source, model.encoder, blocks, maximum)
        outputs = ["memory", *_names("cross", blocks)]
        graphs = {
            ENCODER_NAME: _write_encoder(encoder, outputs, folder, maximum),
            DECODER_NAME: _write_decoder(decoder, folder, maximum),
        }
    else:
        step = DecoderGraph(model.embedding, model.layers, model._logits, maximum)
        graphs = {DECODER_NAME: _write_decoder(step, folder, maximum)}
    config = {
        "format_version": 1,
        "pad_token_id": PAD,
        "bos_token_id": next(iter(input_form(run).before), BOS),
        "eos_token_id": EOS,
        "max_positions": maximum,
        "graphs": graphs,
    }
    write_unflushed(folder / CONFIG_NAME, json.dumps(config, indent=2) + "\n")
    return _USAGE


def _write_encoder(graph: nn.Module, outputs: list[str], folder: Path, maximum: int) -> dict[str, Any]:
    batch, source = Dim("batch"), Dim("source", max=maximum)
    example = torch.ones(_BATCH, _SOURCE, dtype=torch.int64), torch.tensor([_SOURCE, _SOURCE - 1])
    axes = {0: batch, 1: source}, {0: batch}
    return _write(graph, folder / ENCODER_NAME, example, axes, ["tokens", "lengths"], outputs)


def _write_decoder(graph: DecoderGraph, folder: Path, maximum: int) -> dict[str, Any]:
    batch, new, past = Dim("batch"), Dim("new", max=maximum), Dim("past", max=maximum - 1)
    blocks: list[Any] = list(graph.blocks)
    tokens = torch.ones(_BATCH, _NEW, dtype=torch.int64)
    own, cross = _tensors(blocks, "attention", _PAST), _tensors(blocks, "cross", _SOURCE)
    inputs, outputs = ["tokens"], ["logits", *_names("present", blocks, "attention")]
    names_of_past = _names("past", blocks, "attention")
    if not isinstance(graph, CrossDecoderGraph):
        axes: Any = ({0: batch, 1: new}, [{0: batch, 2: past} for _ in own])
        return _write(graph, folder / DECODER_NAME, (tokens, own), axes, [*inputs, *names_of_past], outputs)
    source = Dim("source", max=maximum)
    example = tokens, torch.tensor([_SOURCE, _SOURCE - 1]), cross, own
    of_memory = [{0: batch, 2: source} for _ in cross]
    axes = ({0: batch, 1: new}, {0: batch}, of_memory, [{0: batch, 2: past} for _ in own])
    inputs += ["lengths", *_names("cross", blocks), *names_of_past]
    return _write(graph, folder / DECODER_NAME, example, axes, inputs, outputs)


def _tensors(blocks: Sequence[Any], sublayer: str, length: int) -> list[Tensor]:
    shapes = (shape for block in blocks for shape in tensor_shapes(getattr(block, sublayer)))
    return [torch.zeros(_BATCH, heads, length, size) for heads, size in shapes]


def _names(prefix: str, blocks: Sequence[Any], sublayer: str = "cross") -> list[str]:
    sublayers = ((index, getattr(block, sublayer)) for index, block in enumerate(blocks))
    return [f"{prefix}.{index}.{part}" for index, each in sublayers if each is not None for part in each.layer.parts]


def _write(
    graph: nn.Module, path: Path, example: Any, axes: Any, inputs: list[str], outputs: list[str]
) -> dict[str, list[str]]:
    with warnings.catch_warnings(), _silenced(logging.getLogger("torch.onnx")):
        warnings.simplefilter("ignore")  # of torch and onnxscript about themselves
        torch.onnx.export(
            graph.eval(),
            example,
            str(path),
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=axes,
            external_data=False,
            verbose=False,
        )
    return {"inputs": inputs, "outputs": outputs}


@contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    """Leave out warnings; those of torch name torchvision, which no graph needs."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
