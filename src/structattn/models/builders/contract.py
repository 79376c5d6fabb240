"""What a new model must keep of a layer's constructor."""

from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import nn

from structattn.attention.contract import require_equal
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.mechanisms import build_attention, build_cross_attention
from structattn.models.builders.models import build_encoder_decoder, build_language_model
from structattn.models.initialization import WeightRule
from structattn.settings.base import Settings
from structattn.settings.transformer import EncoderDecoderSettings, LanguageModelSettings, TransformerSettings
from structattn.support.errors import BrokenContractError

_SIZES = {"d_model": 6, "num_heads": 3, "d_ff": 8}
_VOCABULARY = VocabularySpec(9)


def check_initial_values(settings: Settings) -> None:
    """Initial values that a constructor sets are those of a new model, and torch's seed determines those it draws.

    What differs between two seeds is drawn, and may be drawn again by the rule of the model. So may vectors of zeros,
    such as biases.

    Args:
        settings: of self-attention.
    """
    _check(
        lambda: build_attention(TransformerSettings.model_validate(_SIZES), settings, causal=True),
        lambda rule: _language_model(settings, rule),
    )


def check_cross_initial_values(settings: Settings) -> None:
    """Initial values that a constructor sets are those of a new model, and torch's seed determines those it draws."""
    _check(
        lambda: build_cross_attention(TransformerSettings.model_validate(_SIZES), settings),
        lambda rule: _encoder_decoder(settings, rule),
    )


def _language_model(settings: Settings, rule: str) -> Any:
    tree = {**_SIZES, "layers": [settings.model_dump()], "weight_init": rule}
    model: Any = build_language_model(LanguageModelSettings.model_validate(tree), _VOCABULARY)
    return model.layers.blocks[0].attention.layer


def _encoder_decoder(settings: Settings, rule: str) -> Any:
    decoder = {"layers": 1, "cross_attention": [settings.model_dump()]}
    tree = {**_SIZES, "kind": "encoder_decoder", "decoder": decoder, "weight_init": rule}
    model: Any = build_encoder_decoder(EncoderDecoderSettings.model_validate(tree), _VOCABULARY, _VOCABULARY)
    return model.decoder.blocks[0].cross.layer


@torch.no_grad()
def _check(make: Callable[[], Any], built: Callable[[str], Any]) -> None:
    first, again, other = (_seeded(seed, make) for seed in (1, 1, 2))
    for (name, drawn), repeated in zip(first.named_parameters(), again.parameters(), strict=True):
        require_equal(f"the initial {name}", repeated, "that of an equal seed of torch", drawn)
    for rule in get_args(WeightRule):
        layer = _seeded(3, lambda rule=rule: built(rule))
        for (name, one), two, found in zip(
            first.named_parameters(), other.parameters(), layer.parameters(), strict=True
        ):
            is_set = (one == two) if one.dim() != 1 else (one == two) & (one != 0)
            if not torch.equal(found[is_set], one[is_set]):
                wrong = is_set & (found != one)
                raise BrokenContractError(
                    f"the constructor sets {name} to {one[wrong][0].item():g}, and a model with weight_init {rule!r} "
                    f"begins with {found[wrong][0].item():g}; initialize_own is called last and can set it"
                )


def _seeded(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(seed)
    return make()
