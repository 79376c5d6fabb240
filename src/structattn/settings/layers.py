"""The layers of a transformer, as a typed list or in short: ``2.nondeterministic-2-3-5.2``."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag

from structattn.settings.base import Settings, told_apart_by

PushedActivation = Literal["sigmoid", "none"]


class SoftmaxLayer(Settings):
    """Multi-head scaled dot-product attention."""

    attention: Literal["softmax"] = "softmax"
    heads: int | None = Field(default=None, ge=1, description="heads; the model's number where it is left out")


class SuperpositionLayer(Settings):
    """Superposition stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["superposition"]
    vector: int = Field(ge=1, description="m, the size of a stack vector")
    pushed_activation: PushedActivation = Field(
        default="sigmoid", description="what is applied to a pushed vector; the paper: sigmoid, its code: none"
    )


class NondeterministicLayer(Settings):
    """Nondeterministic stack attention (DuSell & Chiang 2024, section 5)."""

    attention: Literal["nondeterministic"]
    states: int = Field(ge=1, le=16, description="|Q|")
    symbols: int = Field(ge=1, le=16, description="|Γ|, the bottom symbol included")
    vector: int = Field(ge=1, description="m, the size of a stack vector")
    pushed_activation: Literal["sigmoid", "exp"] = Field(
        default="sigmoid", description="what is applied to a pushed vector; the paper: sigmoid, its code: exp"
    )


Layer = Annotated[
    Annotated[SoftmaxLayer, Tag("softmax")]
    | Annotated[SuperpositionLayer, Tag("superposition")]
    | Annotated[NondeterministicLayer, Tag("nondeterministic")],
    told_apart_by("attention", default="softmax"),
]

_SHORT = {
    "superposition": ("vector",),
    "nondeterministic": ("states", "symbols", "vector"),
    "softmax": ("heads",),
}


def _layers_from_part(part: str, text: str) -> list[dict[str, Any]]:
    if re.fullmatch(r"[0-9]+", part):
        return [{"attention": "softmax"} for _ in range(int(part))]
    name, *sizes = part.split("-")
    fields = _SHORT.get(name)
    if fields is None:
        raise ValueError(f"{part!r} in {text!r} is neither a number of softmax layers nor one of {sorted(_SHORT)}")
    if len(sizes) != len(fields) or not all(re.fullmatch(r"[0-9]+", size) for size in sizes):
        raise ValueError(f"{part!r} in {text!r} should read {'-'.join([name, *fields])}, with numbers")
    return [{"attention": name, **{field: int(size) for field, size in zip(fields, sizes, strict=True)}}]


def layers_from_short(value: object) -> object:
    """Turn the short form into the list it stands for; leave anything but text alone.

    Parts are separated by points: a number stands for that many softmax layers, ``superposition-m`` and
    ``nondeterministic-Q-S-m`` for one stack layer, ``softmax-h`` for one layer with h heads.
    """
    if isinstance(value, float):  # 2.10 would have become 2.1 on the way
        raise ValueError(f"YAML reads {value} as a number; write the layers in quotes, or add them up")
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return value
    return [layer for part in text.split(".") for layer in _layers_from_part(part, text)]


_LayerList = Annotated[tuple[Layer, ...], Field(min_length=1)]
Layers = Annotated[_LayerList, BeforeValidator(layers_from_short, json_schema_input_type=_LayerList | str | int)]
