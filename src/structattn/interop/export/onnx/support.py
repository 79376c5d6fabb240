"""Which models have a graph, and the names of those parts that have none."""

from typing import Any

from structattn.attention.positions import RelativePositions
from structattn.interop.export.onnx.attention import CROSS_ATTENTION, SELF_ATTENTION
from structattn.interop.export.refusals import refuse, require_own_tables
from structattn.loading.trained_run import TrainedRun
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.settings.model import LanguageModelSettings, MaskedLanguageModelSettings
from structattn.settings.positions import Sinusoidal

FORM = "onnx"
_STEPS = "only softmax, hard and gaussian attention have a graph"


def require_graph(run: TrainedRun) -> None:
    """Check that all parts of a model have a graph.

    Raises:
        UsageError: one has none; the message has its path in the settings.
    """
    require_own_tables(run, FORM)
    settings, model = run.settings.model, run.model
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
