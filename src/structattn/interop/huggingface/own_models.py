"""The models of this package as models of transformers.

Logits have a column for each id; those of ``<pad>`` and ``<bos>``, which are never predicted, are -inf. There is no
cache: each generated token processes the whole text again.
"""

from typing import Any

import torch
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
from structattn.interop.huggingface.remote_code import SavedWithCode
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder, build_model
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.shapes import Int
from structattn.support.special_tokens import BOS, CLASS_OFFSET, PAD

IGNORED_LABEL = -100  # of transformers


class OwnModel(SavedWithCode, PreTrainedModel):
    """A model of this package, in ``model``."""

    config_class: Any = StructattnConfig
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # a loss is a mean over labels that the Trainer cannot count
    model: Any

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = self._build()
        self._lacks_buffers = any(buffer.is_meta for buffer in self.buffers())
        self.post_init()

    def _build(self) -> nn.Module:
        return build_model(self.config.model_settings(), self.config.vocab_size)

    def _init_weights(self, module: nn.Module) -> None:
        """Restore the buffers that are not stored; ``from_pretrained`` builds the model on the meta device."""
        if not (module._non_persistent_buffers_set and self._lacks_buffers) or self.device.type == "meta":
            return
        self._lacks_buffers = False
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            computed = self._build().to(self.dtype)
        for path, each in computed.named_modules():
            for name in each._non_persistent_buffers_set:
                setattr(self.model.get_submodule(path), name, each.get_buffer(name).to(self.device))


class StructattnModel(OwnModel):
    """A causal or masked language model without its output layer."""

    def forward(
        self, input_ids: Int[Tensor, "batch time"], attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Return the hidden states before the output layer (B, T, d), of two streams the semantic one."""
        padding = padding_of(attention_mask, input_ids.shape[1])
        return BaseModelOutput(last_hidden_state=process_sequences(self._hidden_states, input_ids, padding))

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
            attention_mask: (B, T), 0 for padding, left or right. Logits at padding are those of the token after the
                text before it, so that texts with padding at the right can be continued.
            labels: ids; the loss is the mean cross-entropy of those that have an input before them, without padding,
                ``<bos>`` and -100, in nats.
            **kwargs: other arguments of transformers, not used.
        """
        require_known(input_ids, self.config.vocab_size)
        padding = padding_of(attention_mask, input_ids.shape[1])
        if padding is None:
            logits = logits_of_ids(self.model(input_ids))
        else:
            lengths = padding.lengths.to(input_ids.device)
            logits = logits_of_ids(padding.latest(self.model(padding.to_front(input_ids), lengths)))
        if labels is None:
            return CausalLMOutput(logits=logits)
        if padding is not None:
            first = padding.real.cumsum(1) <= 1  # real or padding before it
            labels = labels.masked_fill((first | ~padding.real).to(labels.device), IGNORED_LABEL)
        return CausalLMOutput(loss=mean_cross_entropy(logits[:, :-1], labels[:, 1:]), logits=logits)


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
            labels: ids; the loss is their mean cross-entropy, without padding, ``<bos>`` and -100, in nats.
            **kwargs: other arguments of transformers, not used.
        """
        require_known(input_ids, self.config.vocab_size + 1)  # the mask is the last
        padding = padding_of(attention_mask, input_ids.shape[1])
        logits = logits_of_ids(process_sequences(self.model, input_ids, padding))
        return MaskedLMOutput(loss=None if labels is None else mean_cross_entropy(logits, labels), logits=logits)


def require_known(ids: Tensor, size: int) -> None:
    """Check that ids are below a vocabulary's size; nothing is checked under a compiler.

    Raises:
        ValueError: one is not.
    """
    if not (torch.compiler.is_compiling() or ids.is_meta) and ids.numel() and int(ids.max()) >= size:
        reason = "where a vocabulary has no <unk>, that is the id of words that it does not have"
        raise ValueError(f"id {int(ids.max())} is not in the vocabulary of 0 to {size - 1}; {reason}")


def logits_of_ids(classes: Tensor) -> Tensor:
    """Return logits of ids, given those of classes."""
    return functional.pad(classes, (CLASS_OFFSET, 0), value=-torch.inf)


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats of all labels but -100, ``<pad>`` and ``<bos>``; 0 if there are none."""
    classes = (labels - CLASS_OFFSET).clamp(min=-1).flatten().to(logits.device)
    nats = functional.cross_entropy(
        logits[..., CLASS_OFFSET:].flatten(0, 1).float(), classes, ignore_index=-1, reduction="sum"
    )
    return nats / (classes >= 0).sum().clamp(min=1)


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
        decoder_attention_mask: Int[Tensor, "batch time"] | None = None,
        encoder_outputs: Any = None,
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
            labels: target ids that end with ``<eos>``; the loss is their mean cross-entropy, without padding and -100,
                in nats. Without ``decoder_input_ids`` padding may be at the left, too.
            **kwargs: other arguments of transformers, not used.

        Raises:
            ValueError: there are neither ``decoder_input_ids`` nor ``labels``.
        """
        if input_ids is not None:
            require_known(input_ids, self.config.source_vocab_size)
        memory = (self.get_encoder()(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs)[0]
        lengths = None if attention_mask is None else attention_mask.sum(1)
        if decoder_input_ids is not None:
            padding = padding_of(decoder_attention_mask, decoder_input_ids.shape[1])
            target = decoder_input_ids if padding is None else padding.to_front(decoder_input_ids)
        elif labels is not None:
            padding = padding_of(labels >= CLASS_OFFSET, labels.shape[1])
            target = labels.clamp(min=PAD) if padding is None else padding.to_front(labels.clamp(min=PAD))
            target = functional.pad(target[:, :-1], (1, 0), value=BOS)
        else:
            raise ValueError("expected decoder_input_ids or labels")
        classes = self.model.logits(self.model.decoder(self.model.target(target), None, memory, lengths))
        logits = logits_of_ids(classes if padding is None else padding.restore(classes))
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
        padding = padding_of(attention_mask, input_ids.shape[1])
        if padding is None:
            return BaseModelOutput(last_hidden_state=self.model.encode(input_ids))
        memory = self.model.encode(padding.to_front(input_ids), padding.lengths.to(input_ids.device))
        return BaseModelOutput(last_hidden_state=memory)


OWN_CLASSES: dict[Any, tuple[type[OwnModel], ...]] = {
    AutoModel: (StructattnModel,),
    AutoModelForCausalLM: (StructattnForCausalLM,),
    AutoModelForMaskedLM: (StructattnForMaskedLM,),
    AutoModelForSeq2SeqLM: (StructattnForSeq2SeqLM,),
}
"""AutoModel -> the classes that it builds."""
