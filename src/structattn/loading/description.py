"""A model and its data in a few words, for tables."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, assert_never

from structattn.settings.embeddings import C2wEmbedding, CharacterLstmEmbedding, TableEmbedding, WordEmbedding
from structattn.settings.huggingface import Gpt2Settings, RobertaSettings, stack_layers
from structattn.settings.layers import Layer
from structattn.settings.mechanisms import describe_mechanism
from structattn.settings.models import ModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.transformer import (
    EncoderDecoderSettings,
    LanguageModelSettings,
    LayeredSettings,
    MaskedLanguageModelSettings,
    TwoStreamEncoderDecoderSettings,
    TwoStreamSettings,
)
from structattn.support.environment import name_of
from structattn.text.folders.prepared import PreparedFolder


def describe_model(settings: ModelSettings) -> str:
    """For example ``d 28: 2 softmax, nondeterministic 2-3-5, 2 softmax``."""
    match settings:
        case LanguageModelSettings():
            return f"d {settings.d_model}: {_embedding_in_words(settings.embedding)}{_looped_in_words(settings)}"
        case MaskedLanguageModelSettings():
            return f"d {settings.d_model}, masked: {_looped_in_words(settings)}"
        case EncoderDecoderSettings():
            return f"d {settings.d_model}: {_sides_in_words(settings)}"
        case TwoStreamSettings() | TwoStreamEncoderDecoderSettings():
            return _two_streams_in_words(settings)
        case LstmSettings() | ElmanSettings():
            return _recurrent_in_words(settings)
        case Gpt2Settings() | RobertaSettings():
            return _huggingface_in_words(settings)
    assert_never(settings)


def _two_streams_in_words(settings: TwoStreamSettings | TwoStreamEncoderDecoderSettings) -> str:
    layers = f"{settings.num_layers} two-stream"
    if isinstance(settings, TwoStreamEncoderDecoderSettings):
        return f"d {settings.d_model}: encoder {layers}; decoder {layers}"
    form = "simplified " if settings.layer_form == "simplified" else ""
    return f"d {settings.d_model}: {settings.num_layers} {form}two-stream"


def _huggingface_in_words(settings: Gpt2Settings | RobertaSettings) -> str:
    name = "GPT-2" if isinstance(settings, Gpt2Settings) else "RoBERTa"
    weights = "" if settings.pretrained is None else f" from {settings.pretrained.name}"
    if settings.stack is None:
        return f"{name}{weights}, d {settings.d_model}: {settings.num_layers} softmax"
    chosen = len(stack_layers(settings.stack, settings.num_layers))
    where = "" if chosen == settings.num_layers else f" in {chosen}"
    stack = f"{describe_mechanism(settings.stack)}{where}"
    return f"{name}{weights}, d {settings.d_model}: {settings.num_layers} softmax + {stack}"


def _recurrent_in_words(settings: LstmSettings | ElmanSettings) -> str:
    name = "LSTM" if isinstance(settings, LstmSettings) else f"{settings.activation} RNN"
    stack = "" if settings.stack is None else f": {describe_mechanism(settings.stack)}"
    stack += " joined to the output" if settings.join_reading else ""
    layers = f"{settings.num_layers} x " if settings.num_layers > 1 else ""
    return f"{_embedding_in_words(settings.embedding)}{layers}{name} {settings.hidden_size}{stack}"


def _sides_in_words(settings: EncoderDecoderSettings) -> str:
    encoder, decoder = (
        _embedding_in_words(side.embedding) + _layers_in_words(side.layers)
        for side in (settings.encoder, settings.decoder)
    )
    cross = settings.decoder.cross_attention
    across = "" if cross is None else f"; across {_in_runs(describe_mechanism(each) for each in cross)}"
    spelling = "" if settings.decoder.spelling is None else "; <unk> spelled"
    return f"encoder {encoder}; decoder {decoder}{across}{spelling}"


def _embedding_in_words(embedding: WordEmbedding) -> str:
    match embedding:
        case TableEmbedding():
            return ""
        case C2wEmbedding(words=words) | CharacterLstmEmbedding(words=words):
            name = embedding.kind.replace("_", " ")
            return f"{name} for {words} words, "
    assert_never(embedding)


def _layers_in_words(layers: Sequence[Layer]) -> str:
    return _in_runs(_layer_in_words(layer) for layer in layers)


def _looped_in_words(settings: LayeredSettings) -> str:
    if settings.loops is None:
        stack = "" if settings.depth_stack is None else f"; {describe_mechanism(settings.depth_stack)} over depth"
        return _layers_in_words(settings.layers) + stack
    loops, end = settings.loops, len(settings.layers) - settings.loops.coda
    factor = f"{loops.factor} " if loops.factor > 1 else ""
    most = "" if loops.maximum is None else f", at most {loops.maximum}"
    times = f"{factor}log n{most}" if loops.count == "log" else f"{loops.count}"
    blanks = " + ".join(
        f"{count}{unit}" for count, unit in ((loops.padding_per_symbol, " n"), (loops.padding, "")) if count
    )
    padded = f", {blanks} blanks" if blanks else ""
    repeated = f"({_layers_in_words(settings.layers[loops.prelude : end])}) x {times}"
    parts = _layers_in_words(settings.layers[: loops.prelude]), repeated, _layers_in_words(settings.layers[end:])
    return ", ".join(part for part in parts if part) + padded


def _in_runs(words: Iterable[str]) -> str:
    runs = [(words, len(list(group))) for words, group in groupby(words)]
    return ", ".join(words if count == 1 else f"{count} {words}" for words, count in runs)


def _layer_in_words(layer: Layer) -> str:
    added = "" if layer.stack is None else f" + {describe_mechanism(layer.stack)}"
    return describe_mechanism(layer) + added + ("" if layer.feedforward else " without feed-forward")


def describe_data(prepared: PreparedFolder) -> dict[str, Any]:
    """Kind and name of a prepared folder; of a formal language also its variant and its training lengths."""
    extra = prepared.header.extra
    description: dict[str, Any] = {"kind": prepared.kind, "name": name_of(prepared.path)}
    if prepared.kind == "formal_language":
        description |= {key: extra.get(key) for key in ("language", "variant", "train_lengths")}
        description["train_number_of_lengths"] = extra.get("number_of_lengths", {}).get("train")
    if prepared.kind == "transduction":
        description |= {key: extra.get(key) for key in ("transduction", "train_lengths")}
    if prepared.kind == "recognition":
        description |= {key: extra.get(key) for key in ("language", "protocol", "max_lengths")}
    return description
