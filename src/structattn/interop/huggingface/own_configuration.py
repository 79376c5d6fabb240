"""Configurations of the models of this package as models of transformers."""

from typing import Any

from pydantic import TypeAdapter
from transformers import PreTrainedConfig

from structattn.settings.models import OwnModelSettings
from structattn.support.special_tokens import BOS, EOS, PAD


class StructattnConfig(PreTrainedConfig):
    """The settings of a causal or masked language model, and the size of its vocabulary.

    Fields:
        settings: a dict as under ``model`` in the settings of a run.
        vocab_size: the number of ids; for a masked model without the mask, whose id is this number.
    """

    model_type = "structattn"
    settings: dict[str, Any] | None = None
    vocab_size: int = 3
    pad_token_id: int = PAD
    bos_token_id: int = BOS
    eos_token_id: int = EOS

    def model_settings(self) -> OwnModelSettings:
        """Return the validated settings of the model.

        Raises:
            ValueError: a field is unknown or invalid.
        """
        return _SETTINGS.validate_python(self.settings or {})


class StructattnSeq2SeqConfig(StructattnConfig):
    """The settings of an encoder-decoder, and the sizes of both vocabularies.

    Fields:
        vocab_size: the number of ids of the target.
        source_vocab_size: the number of ids of the source.
    """

    model_type = "structattn-seq2seq"
    source_vocab_size: int = 3
    is_encoder_decoder: bool = True
    decoder_start_token_id: int = BOS


_SETTINGS: TypeAdapter[OwnModelSettings] = TypeAdapter(OwnModelSettings)
