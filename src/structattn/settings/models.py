"""Union of the settings of all models."""

from typing import Annotated

from structattn.settings.base import OneOf
from structattn.settings.huggingface import Gpt2Settings, RobertaSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.transformer import (
    EncoderDecoderSettings,
    LanguageModelSettings,
    MaskedLanguageModelSettings,
    TwoStreamEncoderDecoderSettings,
    TwoStreamSettings,
)

OwnModelSettings = (
    LanguageModelSettings
    | MaskedLanguageModelSettings
    | EncoderDecoderSettings
    | TwoStreamSettings
    | TwoStreamEncoderDecoderSettings
    | LstmSettings
    | ElmanSettings
)
"""Models of this package, without those of transformers."""

ModelSettings = Annotated[OwnModelSettings | Gpt2Settings | RobertaSettings, OneOf("kind", "transformer")]
