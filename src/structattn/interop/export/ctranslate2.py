"""Export to CTranslate2: translators of softmax attention, for its engine on CPUs and GPUs."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from structattn.attention.softmax import CrossSoftmaxAttention
from structattn.interop.export.input_form import refuse, require_own_tables
from structattn.interop.export.tokenizer import write_tokenizers
from structattn.loading.trained_run import TrainedRun
from structattn.settings.base import literal_of
from structattn.settings.embeddings import UNLIMITED_POSITIONS, Learned, NoPositions, Sinusoidal
from structattn.settings.layers import SoftmaxLayer
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.imports import require_modules
from structattn.support.shapes import Float32
from structattn.support.special_tokens import CLASS_OFFSET

FORM: Final = "ctranslate2"
NEVER: Final = -1e9  # logit of <pad> and <bos>, which are never predicted
_USAGE: Final = """```python
import ctranslate2
import tokenizers

translator = ctranslate2.Translator(FOLDER)
source = tokenizers.Tokenizer.from_file(f"{FOLDER}/tokenizer.json")
tokens = source.encode(TEXT, add_special_tokens=False).tokens
(found,) = translator.translate_batch([tokens], beam_size=5)
```"""

Weights = Float32[np.ndarray, "..."]


def export_ctranslate2(run: TrainedRun, folder: Path) -> str:
    """Write ``model.bin``, vocabularies, configuration and tokenizer of a translator."""
    settings = _supported(run)
    sides = run.prepared.sides
    vocabularies = [list(side.vocabulary.symbols) for side in (sides.source, sides.target)]
    write_ctranslate2(run.model, vocabularies, folder, pre_norm=settings.norm == "pre")
    write_tokenizers(run, folder)
    return _USAGE


def write_ctranslate2(model: Any, vocabularies: Sequence[list[str]], folder: Path, pre_norm: bool) -> None:
    """Write ``model.bin``, vocabularies and configuration of an encoder-decoder transformer with softmax attention.

    Args:
        model: an ``EncoderDecoder`` whose layers the engine has; see ``export_ctranslate2``.
        vocabularies: the symbols of the source and of the target, in the order of their ids.
        folder: an existing folder.
        pre_norm: whether layer norms stand before the sublayers.

    Raises:
        UsageError: the library is not installed.
    """
    require_modules("ctranslate2", "ctranslate2")
    specs: Any = importlib.import_module("ctranslate2.specs")
    source, target = vocabularies
    spec = _specification(specs, model, (len(source), len(target)), pre_norm)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token, spec.config.eos_token = "<bos>", "<eos>"
    spec.config.decoder_start_token, spec.config.add_source_eos = "<bos>", True
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def _supported(run: TrainedRun) -> EncoderDecoderSettings:
    """Return the settings of the model if the engine has all of its parts.

    Raises:
        UsageError: it lacks one; the message has its path in the settings.
    """
    require_own_tables(run, FORM)
    settings = run.settings.model
    if not isinstance(settings, EncoderDecoderSettings):
        raise refuse(run, FORM, f"model: {settings.kind}", "only translators can")
    for side, layers in (("encoder", settings.encoder.layers), ("decoder", settings.decoder.layers)):
        plain = SoftmaxLayer.model_validate({"num_heads": layers[0].model_dump().get("num_heads")})
        for index, layer in enumerate(layers):
            if layer != plain:
                tree = layer.model_dump()
                name = (tree["stack"] or tree)["attention"]
                reason = "expected softmax layers with feed-forward sublayers and the same number of heads, no stacks"
                raise refuse(run, FORM, f"model.{side}.layers.{index}: {name}", reason)
    model: Any = run.model
    for index, block in enumerate(model.decoder.blocks):
        if block.cross is None or not isinstance(block.cross.layer, CrossSoftmaxAttention):
            raise refuse(run, FORM, f"model.decoder.cross_attention.{index}", "expected softmax in every layer")
        if block.cross.layer.num_heads != block.attention.layer.num_heads:
            raise refuse(run, FORM, f"model.decoder.cross_attention.{index}", "expected as many heads as the layer")
    if settings.d_ff is None:
        raise refuse(run, FORM, "model.d_ff: null", "expected feed-forward sublayers")
    positions = settings.positions
    backward = isinstance(positions, Sinusoidal) and positions.direction == "backward"
    if backward or not isinstance(positions, Learned | NoPositions | Sinusoidal):
        raise refuse(
            run,
            FORM,
            f"model.positions: {literal_of(type(positions), 'kind')}",
            "expected none, learned or forward sinusoidal",
        )
    return settings


def _specification(specs: Any, model: Any, sizes: tuple[int, int], pre_norm: bool) -> Any:
    encoder, decoder = (
        side(len(layers.blocks), layers.blocks[0].attention.layer.num_heads, pre_norm=pre_norm)
        for side, layers in (
            (specs.TransformerEncoderSpec, model.encoder),
            (specs.TransformerDecoderSpec, model.decoder),
        )
    )
    source = model.target if model.source is None else model.source
    _set_side(encoder, encoder.embeddings[0], source, sizes[0], model.encoder)
    _set_side(decoder, decoder.embeddings, model.target, sizes[1], model.decoder)
    _set_output(decoder.projection, model)
    return specs.TransformerSpec(encoder, decoder)


def _set_side(spec: Any, embeddings: Any, embedding: Any, vocabulary_size: int, layers: Any) -> None:
    ids = torch.arange(vocabulary_size, device=embedding.table.weight.device)
    embeddings.weight = _array(embedding.token_embeddings(ids)) * np.float32(embedding.factor)
    spec.scale_embeddings = False  # the weights contain the factor
    added = embedding.positions
    count = getattr(added, "max_positions", UNLIMITED_POSITIONS)
    shape = (count, embeddings.weight.shape[1])
    spec.position_encodings.encodings = np.zeros(shape, np.float32) if added is None else _array(added(0, count))
    if spec.pre_norm:
        _set_norm(spec.layer_norm, layers.final)
    for layer, block in zip(spec.layer, layers.blocks, strict=True):
        own, feedforward = block.attention, block.feedforward
        _set_linear(layer.self_attention.linear[0], own.layer.projection)
        _set_linear(layer.self_attention.linear[1], own.layer.output)
        _set_norm(layer.self_attention.layer_norm, own.norm)
        if block.cross is not None:
            parts = (block.cross.layer.query, block.cross.layer.memory, block.cross.layer.output)
            for linear, part in zip(layer.attention.linear, parts, strict=True):
                _set_linear(linear, part)
            _set_norm(layer.attention.layer_norm, block.cross.norm)
        _set_linear(layer.ffn.linear_0, feedforward.layer.hidden)
        _set_linear(layer.ffn.linear_1, feedforward.layer.output)
        _set_norm(layer.ffn.layer_norm, feedforward.norm)


def _set_output(spec: Any, model: Any) -> None:
    output = model.output
    weight = _array(model.target.class_embeddings() if output is None else output.weight)
    bias = np.zeros(len(weight), np.float32) if output is None or output.bias is None else _array(output.bias)
    spec.weight = np.concatenate([np.zeros((CLASS_OFFSET, weight.shape[1]), np.float32), weight])
    spec.bias = np.concatenate([np.full(CLASS_OFFSET, NEVER, np.float32), bias])


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> Weights:
    weights: Weights = tensor.detach().float().cpu().numpy()
    return weights
