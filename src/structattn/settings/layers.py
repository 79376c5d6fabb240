"""Settings of transformer layers, derived from the entries of the mechanisms."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

from pydantic import BeforeValidator, Field, create_model

from structattn.settings.base import MAX_LAYERS, Settings, union_of
from structattn.settings.mechanisms import MECHANISMS, Mechanism, attention_name
from structattn.settings.short_form import layers_from_short, mechanism_from_short

if TYPE_CHECKING:
    AddedStack: TypeAlias = Settings
else:
    _AddedStack = union_of(
        {entry.name: entry.settings for entry in MECHANISMS.values() if entry.added_stack},
        field="attention",
        default="stack_pointer",
    )
    AddedStack = Annotated[_AddedStack, BeforeValidator(mechanism_from_short, json_schema_input_type=_AddedStack | str)]


class LayerSettings(Settings):
    """A transformer layer: its self-attention and its other sublayers."""

    feedforward: bool = Field(default=True, description="whether the layer has a feed-forward sublayer")
    stack: AddedStack | None = Field(
        default=None,
        description="stack attention added after the feed-forward sublayer, without layer norm and dropout; null: none",
    )


def _layer_class(entry: Mechanism) -> type[LayerSettings]:
    created = create_model(
        f"{entry.settings.__name__}Layer",
        __base__=(LayerSettings, entry.settings),
        __module__=__name__,
        __doc__=entry.settings.__doc__,
    )
    return cast(type[LayerSettings], created)


LAYER_CLASSES: Mapping[str, type[LayerSettings]] = MappingProxyType(
    {entry.name: _layer_class(entry) for entry in MECHANISMS.values() if entry.self_attention}
)
"""Name of the self-attention -> settings class of the layer, with the fields of the mechanism and of the layer."""
globals().update({each.__name__: each for each in LAYER_CLASSES.values()})  # pickle finds classes by module and name

if TYPE_CHECKING:
    Layer: TypeAlias = LayerSettings
    CrossAttention: TypeAlias = Settings
else:
    Layer = union_of(LAYER_CLASSES, field="attention", default="softmax")
    _CROSS = [entry.cross_attention for entry in MECHANISMS.values() if entry.cross_attention is not None]
    CrossAttention = union_of({attention_name(each): each for each in _CROSS}, field="attention", default="softmax")

_LayerList = Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
Layers = Annotated[_LayerList, BeforeValidator(layers_from_short, json_schema_input_type=_LayerList | str | int)]
_CrossList = Annotated[tuple[CrossAttention, ...], Field(max_length=MAX_LAYERS)]
CrossLayers = Annotated[_CrossList, BeforeValidator(layers_from_short, json_schema_input_type=_CrossList | str | int)]

DEFAULT_LAYERS = (LAYER_CLASSES["softmax"](),) * 5
"""Five layers with softmax self-attention, as in DuSell & Chiang (2024)."""
