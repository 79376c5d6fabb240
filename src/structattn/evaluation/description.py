"""A model and its data in a few words, for tables."""

from itertools import groupby
from typing import Any

from structattn.data.prepared import PreparedFolder
from structattn.settings.layers import Layer, NondeterministicLayer, SoftmaxLayer, SuperpositionLayer
from structattn.settings.model import LanguageModelSettings


def _layer_in_words(layer: Layer) -> str:
    match layer:
        case SoftmaxLayer():
            return "softmax" if layer.heads is None else f"softmax-{layer.heads}"
        case SuperpositionLayer():
            return f"superposition {layer.vector}"
        case NondeterministicLayer():
            return f"nondeterministic {layer.states}-{layer.symbols}-{layer.vector}"


def describe_model(settings: LanguageModelSettings) -> str:
    """For example ``d 28: 2 softmax, nondeterministic 2-3-5, 2 softmax``."""
    runs = [(words, len(list(group))) for words, group in groupby(_layer_in_words(layer) for layer in settings.layers)]
    layers = ", ".join(words if count == 1 else f"{count} {words}" for words, count in runs)
    return f"d {settings.width}: {layers}"


def describe_data(prepared: PreparedFolder) -> dict[str, Any]:
    """Kind and name of a prepared folder; of a formal language also its reading and its training lengths."""
    extra = prepared.header.extra
    description: dict[str, Any] = {"kind": prepared.kind, "name": prepared.path.resolve().name}
    if prepared.kind == "formal_language":
        description |= {key: extra.get(key) for key in ("language", "reading", "train_lengths")}
        description["train_number_of_lengths"] = extra.get("number_of_lengths", {}).get("train")
    return description
