"""The layers of a transformer, as a typed list or in short."""

from typing import Annotated

from pydantic import BeforeValidator, Field, Tag

from structattn.settings.base import Settings, discriminated_by
from structattn.settings.mechanisms import (
    CrossGaussian,
    Gaussian,
    Hard,
    Nondeterministic,
    Nothing,
    Softmax,
    StackPointer,
    Superposition,
)
from structattn.settings.short_form import layers_from_short, mechanism_from_short

_AddedStack = Annotated[
    Annotated[Superposition, Tag("superposition")]
    | Annotated[Nondeterministic, Tag("nondeterministic")]
    | Annotated[StackPointer, Tag("stack_pointer")],
    discriminated_by("attention", default="stack_pointer"),
]
AddedStack = Annotated[_AddedStack, BeforeValidator(mechanism_from_short, json_schema_input_type=_AddedStack | str)]


class OtherSublayers(Settings):
    """What a layer has besides self-attention."""

    feedforward: bool = Field(default=True, description="a feed-forward sublayer")
    stack: AddedStack | None = Field(
        default=None, description="stack attention added after the feed-forward sublayer, without norm and dropout"
    )


class SoftmaxLayer(OtherSublayers, Softmax):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017)."""


class HardLayer(OtherSublayers, Hard):
    """Hard attention: one position read by each head, learnt as Gumbel-softmax (Discrete Transformer)."""


class GaussianLayer(OtherSublayers, Gaussian):
    """Hard-coded Gaussian attention around fixed offsets (You et al. 2020)."""


class SuperpositionLayer(OtherSublayers, Superposition):
    """Superposition stack attention in the place of self-attention (DuSell & Chiang 2024)."""


class NondeterministicLayer(OtherSublayers, Nondeterministic):
    """Nondeterministic stack attention in the place of self-attention (DuSell & Chiang 2024)."""


class StackPointerLayer(OtherSublayers, StackPointer):
    """Stack attention by pointers; in the place of self-attention here, under ``stack`` added (Li et al. 2024)."""


class NoAttentionLayer(OtherSublayers, Nothing):
    """No self-attention sublayer, nor its residual connection and norm."""


Layer = Annotated[
    Annotated[SoftmaxLayer, Tag("softmax")]
    | Annotated[SuperpositionLayer, Tag("superposition")]
    | Annotated[NondeterministicLayer, Tag("nondeterministic")]
    | Annotated[StackPointerLayer, Tag("stack_pointer")]
    | Annotated[GaussianLayer, Tag("gaussian")]
    | Annotated[HardLayer, Tag("hard")]
    | Annotated[NoAttentionLayer, Tag("none")],
    discriminated_by("attention", default="softmax"),
]
Cross = Annotated[
    Annotated[Softmax, Tag("softmax")]
    | Annotated[CrossGaussian, Tag("gaussian")]
    | Annotated[Hard, Tag("hard")]
    | Annotated[Nothing, Tag("none")],
    discriminated_by("attention", default="softmax"),
]

_LayerList = Annotated[tuple[Layer, ...], Field(min_length=1)]
Layers = Annotated[_LayerList, BeforeValidator(layers_from_short, json_schema_input_type=_LayerList | str | int)]
_CrossList = tuple[Cross, ...]
CrossLayers = Annotated[_CrossList, BeforeValidator(layers_from_short, json_schema_input_type=_CrossList | str | int)]
