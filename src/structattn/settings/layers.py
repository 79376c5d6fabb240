"""Settings of lists of layers, their short form, ``2.nondeterministic-2-3-5.2`` or ``4xnone.softmax-1``, and loops."""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, NonNegativeInt, create_model, model_validator

from structattn.settings.attention import Softmax
from structattn.settings.base import MAX_LAYERS, NumLayers, OneOf, Settings, hint_for_name
from structattn.settings.mechanisms import MECHANISMS, Mechanism

_LETTERS: Mapping[str, str] = MappingProxyType(
    {"num_heads": "h", "stack_embedding_size": "m", "num_states": "Q", "stack_alphabet_size": "S"}
)
_NUMBER = "[0-9]+"


Fits = Callable[[Mechanism], object]
"""Whether a mechanism can be used in a place, as truth value."""


def _in_layer(entry: Mechanism) -> object:
    return entry.layer or entry.self_attention


def is_added_stack(entry: Mechanism) -> bool:
    """Return whether a mechanism can be added after a layer."""
    return entry.added_stack


def layers_from_short(value: object, fits: Fits = _in_layer) -> object:
    """Convert the short form of layers to a list of mappings; return values other than str and int unchanged.

    Parts are separated by dots. A number means that many softmax layers. A name, followed by sizes after hyphens, means
    one layer (``superposition-m``, ``nondeterministic-Q-S-m``, ``softmax-h`` with h heads); the prefix ``3x`` means
    three of them. ``+`` adds a stack after the feed-forward sublayer: ``5+stack_pointer``. ``stack_pointer`` alone
    means ``softmax+stack_pointer``, the layer of its paper.

    Args:
        value: the settings of layers.
        fits: which mechanisms the layers may have.

    Raises:
        ValueError: there is no value; or the text is not a valid short form, or has more than ``MAX_LAYERS`` layers.
    """
    if value is None:
        raise ValueError("expected layers, as 2.superposition-32.2")
    if isinstance(value, float):  # YAML has already turned 2.10 into 2.1
        raise ValueError(f"YAML reads {value} as a number; put the layers in quotes, or write their sum")
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return value
    parts = [_layers_of_part(part, text, fits) for part in text.split(".")]
    total = sum(count for count, _ in parts)
    if total > MAX_LAYERS:  # before so many layers are made
        raise ValueError(f"{total} layers; expected at most {MAX_LAYERS}")
    return [dict(layer) for count, layer in parts for _ in range(count)]


def mechanism_from_short(text: str, fits: Fits) -> dict[str, Any]:
    """Convert the short form of one mechanism, ``superposition-10``, to a mapping.

    Raises:
        ValueError: the text is not a valid short form, or the mechanism does not fit.
    """
    return _mechanism(text, text, fits, "one of")


def _layers_of_part(part: str, text: str, fits: Fits) -> tuple[int, dict[str, Any]]:
    """Return the number of layers that a part means, and one of them."""
    body, plus, stack = part.partition("+")
    if re.fullmatch(_NUMBER, body):
        count, name = body, "softmax"
    else:
        match = re.fullmatch(f"(?:({_NUMBER})x)?(.*)", body, re.DOTALL)
        count, name = (match[1] or "1", match[2]) if match else ("1", body)
    if name == "stack_pointer" and not plus:
        name, plus, stack = "softmax", "+", "stack_pointer"
    added = {"stack": _mechanism(stack, text, is_added_stack, "one of")} if plus else {}
    return int(count), _mechanism(name, text, fits, "a number of softmax layers or one of") | added


def _mechanism(part: str, text: str, fits: Fits, expected: str) -> dict[str, Any]:
    name, *sizes = part.split("-")
    known = {each: entry for each, entry in sorted(MECHANISMS.items()) if fits(entry)}
    entry = known.get(name)
    if entry is None:
        hint = hint_for_name(name, known)
        raise ValueError(f"{part!r} in {text!r}: expected {expected} {', '.join(known)}{hint}")
    longer = [] if entry.optional_size is None else [(*entry.sizes, entry.optional_size)]
    choices = [entry.sizes, *longer]
    fields = next((choice for choice in choices if len(choice) == len(sizes)), None)
    if fields is None or not all(re.fullmatch(_NUMBER, size) for size in sizes):
        forms = " or ".join("-".join([name, *(_LETTERS.get(each, each) for each in choice)]) for choice in choices)
        raise ValueError(f"{part!r} in {text!r}: expected {forms}, with numbers")
    return {"attention": name, **{field: int(size) for field, size in zip(fields, sizes, strict=True)}}


def _added_stacks() -> list[type[Settings]]:
    return [entry.settings for entry in filter(is_added_stack, MECHANISMS.values())]


added_stack_from_short = partial(mechanism_from_short, fits=is_added_stack)
AddedStack = Annotated[Settings, OneOf("attention", "stack_pointer", added_stack_from_short, _added_stacks)]


class LayerSettings(Settings):
    """A transformer layer: its self-attention and its other sublayers."""

    feedforward: bool = Field(default=True, description="whether the layer has a feed-forward sublayer")
    stack: AddedStack | None = Field(
        default=None,
        description="stack attention added after the feed-forward sublayer, without layer norm and dropout; null: none",
    )


@cache
def layer_class(settings: type[Settings]) -> type[LayerSettings]:
    """Return the settings class of a layer, with the fields of its self-attention and of the layer."""
    created = create_model(
        f"{settings.__name__}Layer", __base__=(LayerSettings, settings), __module__=__name__, __doc__=settings.__doc__
    )
    return cast(type[LayerSettings], created)


def _layers() -> list[type[LayerSettings]]:
    return [layer_class(entry.settings) for entry in filter(_in_layer, MECHANISMS.values())]


def _cross_attention() -> list[type[Settings]]:
    return [entry.cross_attention.settings for entry in MECHANISMS.values() if entry.cross_attention is not None]


def __getattr__(name: str) -> type[LayerSettings]:
    for each in _layers():  # pickle finds classes by module and name
        if each.__name__ == name:
            return each
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Layer = Annotated[LayerSettings, OneOf("attention", "softmax", registered=_layers)]
CrossAttention = Annotated[Settings, OneOf("attention", "softmax", registered=_cross_attention)]

_LayerList = Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
Layers = Annotated[
    _LayerList,
    BeforeValidator(layers_from_short, json_schema_input_type=_LayerList | str | int),
    Field(description="list of layers, or short form such as 2.superposition-32.2"),
]
_CrossList = Annotated[tuple[CrossAttention, ...], Field(max_length=MAX_LAYERS)]
_cross_from_short = partial(layers_from_short, fits=lambda entry: entry.cross_attention)
CrossLayers = Annotated[_CrossList, BeforeValidator(_cross_from_short, json_schema_input_type=_CrossList | str | int)]

SoftmaxLayer = layer_class(Softmax)
DEFAULT_LAYERS = (SoftmaxLayer(),) * 5
"""Five layers with softmax self-attention, as in DuSell & Chiang (2024)."""

_MOST_LOOPS = 1_000
NumLoops = Annotated[int, Field(ge=1, le=_MOST_LOOPS)]


def _require_count(value: object) -> object:
    """Raise one error, not one for each kind of count."""
    if value == "log" or (type(value) is int and 1 <= value <= _MOST_LOOPS):
        return value
    raise ValueError(f"expected 'log' or a number from 1 to {_MOST_LOOPS}")


class LoopSettings(Settings):
    """Layers that are applied several times, with the same weights: those between a prelude and a coda."""

    count: Annotated[NumLoops | Literal["log"], BeforeValidator(_require_count)] = Field(
        default="log", description="how many times; log: factor × ⌈log₂(p + 1)⌉ times for p positions"
    )
    factor: NumLoops = Field(default=1, description="factor of count: log")
    maximum: NumLoops | None = Field(default=None, description="largest number of times with count: log; null: none")
    prelude: NonNegativeInt = Field(default=0, description="number of first layers that are applied once")
    coda: NonNegativeInt = Field(default=0, description="number of last layers that are applied once")
    injected: bool = Field(default=True, description="whether the embeddings are added before each repetition")
    padding: NonNegativeInt = Field(
        default=0, description="for recognition: number of blank positions after each string, before its label"
    )
    padding_per_symbol: NonNegativeInt = Field(default=0, description="further blank positions for each symbol")

    @model_validator(mode="after")
    def _check_log(self) -> Self:
        if self.count != "log" and (self.factor != 1 or self.maximum is not None):
            raise ValueError(f"factor and maximum are for count: log; count is {self.count}")
        return self

    @property
    def is_padded(self) -> bool:
        """Whether strings have blank positions."""
        return bool(self.padding or self.padding_per_symbol)

    def require_fits(self, num_layers: NumLayers) -> None:
        """Raise ValueError unless a layer is left between prelude and coda."""
        if self.prelude + self.coda >= num_layers:
            raise ValueError(
                f"loops: prelude {self.prelude} and coda {self.coda} leave none of {num_layers} layers to repeat"
            )


def _from_count(value: object) -> object:
    return value if isinstance(value, dict | LoopSettings) or value is None else {"count": value}


Loops = Annotated[
    LoopSettings,
    BeforeValidator(_from_count, json_schema_input_type=LoopSettings | int | Literal["log"]),
]
