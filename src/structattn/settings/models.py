"""Union of the settings of all models."""

from typing import Annotated

from pydantic import Tag

from structattn.settings.base import discriminated_by
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

ModelSettings = Annotated[
    Annotated[LanguageModelSettings, Tag("transformer")]
    | Annotated[MaskedLanguageModelSettings, Tag("masked")]
    | Annotated[EncoderDecoderSettings, Tag("encoder_decoder")]
    | Annotated[TwoStreamSettings, Tag("two_stream")]
    | Annotated[TwoStreamEncoderDecoderSettings, Tag("two_stream_encoder_decoder")]
    | Annotated[LstmSettings, Tag("lstm")]
    | Annotated[ElmanSettings, Tag("rnn")]
    | Annotated[Gpt2Settings, Tag("gpt2")]
    | Annotated[RobertaSettings, Tag("roberta")],
    discriminated_by("kind", default="transformer"),
]
