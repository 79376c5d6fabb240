"""The encoder-decoder of this package as a model of transformers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    Cache,
    GenerationMixin,
)
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from structattn.attention import Explanation
from structattn.interop.huggingface.cache import CACHE_NAME
from structattn.interop.huggingface.configuration import StructattnSeq2SeqConfig
from structattn.interop.huggingface.own_inputs import inner_outputs, recorded_hidden_states
from structattn.interop.huggingface.own_models import (
    OwnModel,
    StructattnForCausalLM,
    StructattnForMaskedLM,
    StructattnForSequenceClassification,
    StructattnModel,
    WithStateCache,
    cache_of,
    mean_cross_entropy,
    require_known,
)
from structattn.interop.huggingface.padding import Padding, in_front, padding_of, process_sequences
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.models.embedding import logits_of_ids
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.shapes import Int
from structattn.support.special_tokens import BOS, CLASS_OFFSET, PAD


@dataclass(frozen=True)
class _DecoderOfMemory:
    """The decoder with the output of the encoder, which steps through the target."""

    model: Any
    memory: Tensor
    lengths: Tensor | None

    def __call__(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the logits of classes; padding of the target is at the end, where nothing looks at it."""
        logits: Tensor = self.model.logits(self.model.decoder(self.model.target(x), None, self.memory, self.lengths))
        return logits

    def explain(self, target: Tensor, padding: Padding | None) -> list[Explanation]:
        """Return the weights of the sublayers, of targets with padding at the end."""
        x, lengths = in_front(target, padding)
        found: list[Explanation] = self.model.decoder.explain(self.model.target(x), lengths, self.memory, self.lengths)
        return found

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first target token."""
        return self.model.decoder.initial_state(batch_size, self.memory, self.lengths)

    def step(self, x_t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Process one target token of each sequence."""
        logits, state = self.model.step(x_t, state)
        return logits, state


class StructattnForSeq2SeqLM(WithStateCache, OwnModel, GenerationMixin):
    """An encoder-decoder of any mechanism with one stream."""

    config_class: Any = StructattnSeq2SeqConfig

    def _build(self) -> nn.Module:
        settings, config = self.config.model_settings(), self.config
        if not isinstance(settings, EncoderDecoderSettings):
            raise ValueError(f"settings are of kind {settings.kind!r}; expected encoder_decoder")
        return build_encoder_decoder(
            settings, VocabularySpec(config.source_vocab_size), VocabularySpec(config.vocab_size)
        )

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Raise an error: it has two vocabularies.

        Raises:
            ValueError: always.
        """
        raise ValueError("an encoder-decoder has two vocabularies, which cannot be resized; train it on others")

    def get_encoder(self, *args: Any, **kwargs: Any) -> "_Encoder":
        """Return the encoder, a function of ids and mask."""
        return _Encoder(self.model)

    def forward(
        self,
        input_ids: Int[Tensor, "batch source"] | None = None,
        attention_mask: Int[Tensor, "batch source"] | None = None,
        decoder_input_ids: Int[Tensor, "batch time"] | None = None,
        decoder_attention_mask: Int[Tensor, "batch time"] | None = None,
        encoder_outputs: Any = None,
        past_key_values: Cache | None = None,
        labels: Int[Tensor, "batch time"] | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits (B, T, vocabulary) of the target token after each position.

        Args:
            input_ids: source ids that end with ``<eos>``.
            attention_mask: 0 for padding of the source, left or right.
            decoder_input_ids: target ids that begin with ``<bos>``; None: made of ``labels``.
            decoder_attention_mask: 0 for padding of the target, left or right; None: it can only be at the end.
            encoder_outputs: what ``get_encoder()`` returned, in place of ``input_ids``; the mask is needed, too.
            past_key_values: the state after the target tokens before these, as the model returned it; or ``cache``, as
                transformers calls it since 5.24.
            labels: target ids that end with ``<eos>``; the loss is their mean cross-entropy, without padding and -100,
                in nats. Without ``decoder_input_ids`` padding may be at the left, too.
            **kwargs: ``use_cache``, ``output_hidden_states`` and ``output_attentions`` as in transformers, all false by
                default; others are not used.

        Raises:
            ValueError: there are neither ``decoder_input_ids`` nor ``labels``, or an id is not known, or the cache is
                that of another model.
        """
        config = self.config
        sides = (
            (input_ids, config.source_vocab_size),
            (decoder_input_ids, config.vocab_size),
            (labels, config.vocab_size),
        )
        for ids, size in sides:
            if ids is not None:
                require_known(ids, size)
        encoded = (
            self.get_encoder()(input_ids, attention_mask, **kwargs) if encoder_outputs is None else encoder_outputs
        )
        memory, lengths = encoded[0], None if attention_mask is None else (attention_mask != 0).sum(1)
        target, padding = _target(decoder_input_ids, decoder_attention_mask, labels)
        cache, decoder = cache_of(past_key_values, kwargs), _DecoderOfMemory(self.model, memory, lengths)
        if cache is None:
            with recorded_hidden_states(self.model.decoder, kwargs) as states:
                logits = logits_of_ids(process_sequences(decoder, target, padding))
            source = None if attention_mask is None else padding_of(attention_mask, attention_mask.shape[1])
            inner = inner_outputs(states, partial(decoder.explain, target, padding), padding, kwargs, source)
        else:
            logits, inner = logits_of_ids(cache.layers[0].process(decoder, target, padding)), {}
        return Seq2SeqLMOutput(
            loss=None if labels is None else mean_cross_entropy(logits, labels),
            logits=logits,
            **{CACHE_NAME: cache},
            encoder_last_hidden_state=memory,
            encoder_hidden_states=getattr(encoded, "hidden_states", None),
            encoder_attentions=getattr(encoded, "attentions", None),
            decoder_hidden_states=inner.get("hidden_states"),
            decoder_attentions=inner.get("attentions"),
            cross_attentions=inner.get("cross_attentions"),
        )


def _target(
    ids: Tensor | None, mask: Tensor | None, labels: Tensor | None
) -> tuple[Int[Tensor, "batch time"], Padding | None]:
    """Return the decoder's input and where its padding is."""
    if ids is not None:
        return ids, padding_of(mask, ids.shape[1])
    if labels is None:
        raise ValueError("expected decoder_input_ids or labels")
    padding = padding_of(labels >= CLASS_OFFSET, labels.shape[1])
    target = labels.clamp(min=PAD) if padding is None else padding.to_front(labels.clamp(min=PAD))
    target = functional.pad(target[:, :-1], (1, 0), value=BOS)
    return target if padding is None else padding.restore(target), padding


class _Encoder(nn.Module):
    """The encoder of a model, as ``generate`` calls it."""

    main_input_name = "input_ids"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Return the memory (B, S, d), padding last; other outputs have padding where it is in the input."""
        padding = padding_of(attention_mask, input_ids.shape[1])
        x, lengths = in_front(input_ids, padding)
        with recorded_hidden_states(self.model.encoder, kwargs) as states:
            memory = self.model.encode(x, lengths)
        more = inner_outputs(states, partial(self._explain, x, lengths), padding, kwargs)
        return BaseModelOutput(last_hidden_state=memory, **more)

    def _explain(self, x: Tensor, lengths: Tensor | None) -> list[Explanation]:
        embedding = self.model.target if self.model.source is None else self.model.source
        found: list[Explanation] = self.model.encoder.explain(embedding(x, 0, lengths), lengths)
        return found


OWN_CLASSES: Mapping[Any, tuple[type[OwnModel], ...]] = MappingProxyType(
    {
        AutoModel: (StructattnModel,),
        AutoModelForCausalLM: (StructattnForCausalLM,),
        AutoModelForMaskedLM: (StructattnForMaskedLM,),
        AutoModelForSequenceClassification: (StructattnForSequenceClassification,),
        AutoModelForSeq2SeqLM: (StructattnForSeq2SeqLM,),
    }
)
"""AutoModel -> the classes that it builds."""
