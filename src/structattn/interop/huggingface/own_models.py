"""The models of this package as models of transformers.

Logits have a column for each id; those of ``<pad>`` and ``<bos>``, which are never predicted, are -inf. There is no
cache: each generated token processes the whole text again.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, MaskedLMOutput, Seq2SeqLMOutput

from structattn.attention import Streams
from structattn.interop.huggingface.configuration import StructattnConfig, StructattnSeq2SeqConfig
from structattn.interop.huggingface.padding import padding_of, process_sequences
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder, build_model
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.special_tokens import BOS, CLASS_OFFSET, PAD

IGNORED_LABEL = -100  # of transformers


class OwnModel(PreTrainedModel):
    """A model of this package, in ``model``."""

    config_class: Any = StructattnConfig
    main_input_name = "input_ids"
    model: Any

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = self._build()
        self.post_init()

    def _build(self) -> nn.Module:
        return build_model(self.config.model_settings(), self.config.vocab_size)

    def _init_weights(self, module: nn.Module) -> None:
        """Restore the buffers that are not stored; ``from_pretrained`` builds the model on the meta device."""
        names = module._non_persistent_buffers_set
        if not names:
            return
        path = next(path for path, each in self.model.named_modules() if each is module)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            computed = self._build().get_submodule(path)
        for name in names:
            module.get_buffer(name).copy_(computed.get_buffer(name))


def process_ids(function: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a function of ids and lengths to a batch with the padding of a mask."""
    return process_sequences(function, ids, None if mask is None else padding_of(mask, ids.shape[1]))


class StructattnModel(OwnModel):
    """A causal or masked language model without its output layer."""

    def forward(
        self, input_ids: Int[Tensor, "batch time"], attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Return the hidden states before the output layer (B, T, d), of two streams the semantic one."""
        return BaseModelOutput(last_hidden_state=process_ids(self._hidden_states, input_ids, attention_mask))

    def _hidden_states(self, ids: Tensor, lengths: Tensor | None) -> Tensor:
        x = self.model.hidden_states(ids, lengths)
        return x.semantic if isinstance(x, Streams) else x


class StructattnForCausalLM(OwnModel, GenerationMixin):
    """A causal language model of any mechanism: transformer, two streams, LSTM or RNN, with or without stacks."""

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"],
        attention_mask: Tensor | None = None,
        labels: Int[Tensor, "batch time"] | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """Return the logits (B, T, vocabulary) of the token after each position.

        Args:
            input_ids: ids that begin with ``<bos>``.
            attention_mask: (B, T), 0 for padding, left or right.
            labels: ids; the loss is the mean cross-entropy of labels 1 to T - 1, each given the inputs before it. -100
                is ignored.
            **kwargs: other arguments of transformers, not used.
        """
        logits = logits_of_ids(process_ids(self.model, input_ids, attention_mask))
        loss = None if labels is None else mean_cross_entropy(logits[:, :-1], labels[:, 1:])
        return CausalLMOutput(loss=loss, logits=logits)


class StructattnForMaskedLM(OwnModel):
    """A masked language model of any mechanism; the mask's id is ``config.vocab_size``."""

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"],
        attention_mask: Tensor | None = None,
        labels: Int[Tensor, "batch time"] | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Return the logits (B, T, vocabulary) of the token at each position.

        Args:
            input_ids: ids.
            attention_mask: (B, T), 0 for padding, left or right.
            labels: ids; the loss is their mean cross-entropy. -100 is ignored.
            **kwargs: other arguments of transformers, not used.
        """
        logits = logits_of_ids(process_ids(self.model, input_ids, attention_mask))
        loss = None if labels is None else mean_cross_entropy(logits, labels)
        return MaskedLMOutput(loss=loss, logits=logits)


def logits_of_ids(classes: Tensor) -> Tensor:
    """Return logits of ids, given those of classes."""
    return functional.pad(classes, (CLASS_OFFSET, 0), value=-torch.inf)


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of labels in nats; -100 is ignored, as in transformers."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL)


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
        memory = (self.get_encoder()(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs)[0]
        lengths = None if attention_mask is None else attention_mask.sum(1)
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
        memory = self.model.encode(padding.to_front(input_ids), padding.lengths.to(input_ids.device))
        return BaseModelOutput(last_hidden_state=memory)


def _shifted(labels: Any) -> Tensor:
    inputs: Tensor = labels.roll(1, dims=1)
    inputs[:, 0] = BOS
    return inputs.masked_fill(inputs == IGNORED_LABEL, PAD)


OWN_CLASSES: dict[Any, tuple[type[OwnModel], ...]] = {
    AutoModel: (StructattnModel,),
    AutoModelForCausalLM: (StructattnForCausalLM,),
    AutoModelForMaskedLM: (StructattnForMaskedLM,),
    AutoModelForSeq2SeqLM: (StructattnForSeq2SeqLM,),
}
"""AutoModel -> the classes that it builds."""
