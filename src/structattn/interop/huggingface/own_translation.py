"""The encoder-decoders of this package as models of transformers; see ``own_models``."""

from typing import Any

from jaxtyping import Int
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from structattn.interop.huggingface.own_configuration import StructattnSeq2SeqConfig
from structattn.interop.huggingface.own_models import (
    IGNORED_LABEL,
    OwnModel,
    logits_of_ids,
    mean_cross_entropy,
    real_first,
)
from structattn.interop.huggingface.padding import padding_of
from structattn.models.builders.embeddings import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.support.special_tokens import BOS, PAD


class StructattnForSeq2SeqLM(OwnModel, GenerationMixin):
    """An encoder-decoder of any mechanism with one stream."""

    config_class: Any = StructattnSeq2SeqConfig

    def _build(self) -> nn.Module:
        settings, config = self.config.model_settings(), self.config
        if not isinstance(settings, EncoderDecoderSettings):
            raise ValueError(f"settings are of kind {settings.kind!r}; expected encoder_decoder")
        return build_encoder_decoder(
            settings, VocabularySpec(config.source_vocab_size), VocabularySpec(config.vocab_size)
        )

    def get_encoder(self, *args: Any, **kwargs: Any) -> "_Encoder":
        """Return the encoder, a function of ids and mask."""
        return _Encoder(self.model)

    def forward(
        self,
        input_ids: Int[Tensor, "batch source"] | None = None,
        attention_mask: Int[Tensor, "batch source"] | None = None,
        decoder_input_ids: Int[Tensor, "batch time"] | None = None,
        encoder_outputs: Any = None,
        labels: Int[Tensor, "batch time"] | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits (B, T, vocabulary) of the target token after each position.

        Args:
            input_ids: source ids that end with ``<eos>``.
            attention_mask: 0 for padding of the source.
            decoder_input_ids: target ids that begin with ``<bos>``; None: made of ``labels``. Padding must be at the
                end.
            encoder_outputs: what ``get_encoder()`` returned, in place of ``input_ids``; the mask is needed, too.
            labels: target ids that end with ``<eos>``; the loss is their mean cross-entropy. -100 is ignored.
            **kwargs: other arguments of transformers, not used.

        Raises:
            ValueError: there are neither ``decoder_input_ids`` nor ``labels``.
        """
        if decoder_input_ids is None and labels is None:
            raise ValueError("expected decoder_input_ids or labels")
        target = _shifted(labels) if decoder_input_ids is None else decoder_input_ids
        found = self.get_encoder()(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs
        lengths = None if attention_mask is None else attention_mask.sum(1)
        memory = found[0]
        x = self.model.decoder(self.model.target(target), None, memory, lengths)
        logits = logits_of_ids(self.model.logits(x))
        loss = None if labels is None else mean_cross_entropy(logits, labels)
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=memory)


class _Encoder(nn.Module):
    """The encoder of a model, as ``generate`` calls it."""

    main_input_name = "input_ids"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Return the memory (B, S, d), padding last."""
        padding = None if attention_mask is None else padding_of(attention_mask, input_ids.shape[1])
        if padding is None:
            return BaseModelOutput(last_hidden_state=self.model.encode(input_ids))
        memory = self.model.encode(real_first(input_ids, padding), padding.lengths.to(input_ids.device))
        return BaseModelOutput(last_hidden_state=memory)


def _shifted(labels: Any) -> Tensor:
    inputs: Tensor = labels.roll(1, dims=1)
    inputs[:, 0] = BOS
    return inputs.masked_fill(inputs == IGNORED_LABEL, PAD)
