"""The models of this package as models of transformers.

Logits have a column for each id; those of ``<pad>`` and ``<bos>``, which are never predicted, are -inf.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Cache, GenerationMixin, PreTrainedModel, initialization
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    SequenceClassifierOutput,
)

from structattn.attention import Streams
from structattn.interop.huggingface.cache import CACHE_NAME, StateCacheLayer
from structattn.interop.huggingface.configuration import StructattnConfig
from structattn.interop.huggingface.own_inputs import (
    AnyInputs,
    IdTable,
    embedding_of,
    inner_outputs,
    recorded_hidden_states,
    resize_vocabulary,
)
from structattn.interop.huggingface.padding import Padding, in_front, padding_of
from structattn.interop.huggingface.remote_code import SavedWithCode
from structattn.models import MaskedLanguageModel
from structattn.models.block import Block
from structattn.models.builders.models import build_model
from structattn.models.embedding import logits_of_ids
from structattn.support.shapes import Float, Int
from structattn.support.special_tokens import CLASS_OFFSET

IGNORED_LABEL = -100  # of transformers


class CheckpointedBlock(GradientCheckpointingLayer, Block):
    """A block that transformers' gradient checkpointing knows."""


class OwnModel(SavedWithCode, PreTrainedModel):
    """A model of this package, in ``model``."""

    config_class: Any = StructattnConfig
    main_input_name = "input_ids"
    accepts_loss_kwargs = False  # a loss is a mean over labels that the Trainer cannot count
    supports_gradient_checkpointing = True
    model: Any

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = self._built()
        self._lacks_buffers = any(buffer.is_meta for buffer in self.buffers())
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings of ids, without positions.

        Raises:
            NotImplementedError: the model has several tables or none.
        """
        return IdTable(embedding_of(self.model))

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        """Change the number of ids; new ones come last, and begin with the mean of the others. Return the embeddings.

        Raises:
            ValueError: of a masked model, whose mask is the id after the last, or there are too few; nothing changes.
        """
        old = size = self.config.vocab_size
        size = size if new_num_tokens is None else new_num_tokens
        size = size if pad_to_multiple_of is None else -(-size // pad_to_multiple_of) * pad_to_multiple_of
        if size != old:
            self.config.vocab_size = size
            try:
                model = self._built().to(self.device, self.dtype).train(self.training)
                resize_vocabulary(self.model, model, mean_resizing)
            except BaseException:
                self.config.vocab_size = old
                raise
            self.model = model
        embedding: nn.Module = self.model.embedding
        return embedding

    def _build(self) -> nn.Module:
        return build_model(self.config.model_settings(), self.config.vocab_size)

    def _built(self) -> nn.Module:
        """Return a new model whose blocks gradient checkpointing knows."""
        model = self._build()
        for module in model.modules():
            if type(module) is Block:
                module.__class__ = CheckpointedBlock
        return model

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

    def _inputs(self, ids: Tensor | None, vectors: Tensor | None) -> Tensor:
        """Return ids or vectors, whichever are given.

        Raises:
            ValueError: both or neither are, or an id is not known.
        """
        if (ids is None) == (vectors is None):
            raise ValueError("expected either input_ids or inputs_embeds")
        if ids is not None:
            has_mask = isinstance(self.model, MaskedLanguageModel)  # the id after the last
            require_known(ids, self.config.vocab_size + has_mask)
        return cast(Tensor, vectors if ids is None else ids)

    def _process(
        self, function: Any, inputs: Tensor, padding: Padding | None, options: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return outputs of whole sequences, and those of the inner layers that the options of ``forward`` ask for."""
        x, lengths = in_front(inputs, padding)
        any_inputs = AnyInputs(self.model)
        with recorded_hidden_states(getattr(self.model, "layers", None), options) as states:
            y = any_inputs.call(lambda ids: function(self.model, ids, lengths), x)
        if options.get("output_hidden_states") and not states:  # a recurrent model has no blocks
            states.append(hidden_states_of(self.model, x, lengths))
        more = inner_outputs(
            states, lambda: any_inputs.call(lambda ids: self.model.explain(ids, lengths), x), padding, options
        )
        return y if padding is None else padding.restore(y), more


class StructattnModel(OwnModel):
    """A causal or masked language model without its output layer."""

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch time d_model"] | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Return the hidden states before the output layer (B, T, d), of two streams the semantic one."""
        inputs = self._inputs(input_ids, inputs_embeds)
        x, more = self._process(hidden_states_of, inputs, padding_of(attention_mask, inputs.shape[1]), kwargs)
        return BaseModelOutput(last_hidden_state=x, **more)


def hidden_states_of(model: Any, ids: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the hidden states before the output layer, of two streams the semantic one."""
    states = model.hidden_states(ids, lengths)
    return cast(Tensor, states.semantic if isinstance(states, Streams) else states)


def classes_of(model: Any, ids: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the logits of classes."""
    return cast(Tensor, model(ids, lengths))


class WithStateCache:
    """Lets ``generate`` take one step a token: the cache is the model's state."""

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any) -> None:
        given = (model_kwargs.get(name) for name in ("cache", "past_key_values"))
        if generation_config.use_cache is not False and all(each is None for each in given):
            model_kwargs[CACHE_NAME] = state_cache()


def state_cache() -> Cache:
    """Return an empty cache for the state of a model of this package."""
    return Cache(layers=[StateCacheLayer()])


def cache_of(past_key_values: Cache | None, options: dict[str, Any]) -> Cache | None:
    """Return the cache that ``forward`` is to use, ``cache`` among the options if it is there; None: none.

    Raises:
        ValueError: it is that of another model, or outputs of inner layers are wanted, which steps do not keep.
    """
    given: Cache | None = options.get("cache") if past_key_values is None else past_key_values
    cache = state_cache() if given is None and options.get("use_cache") else given
    if cache is None:
        return None
    if [type(layer) for layer in cache.layers] != [StateCacheLayer]:
        raise ValueError(f"{CACHE_NAME} has the layers {cache.layers}; expected a cache that the model returned")
    if options.get("output_attentions") or options.get("output_hidden_states"):
        raise ValueError("hidden states and attentions are those of whole texts; use use_cache=False")
    return cache


class StructattnForCausalLM(WithStateCache, OwnModel, GenerationMixin):
    """A causal language model of any mechanism: transformer, two streams, LSTM or RNN, with or without stacks."""

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Float[Tensor, "batch time d_model"] | None = None,
        labels: Int[Tensor, "batch time"] | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits (B, T, vocabulary) of the token after each position.

        Args:
            input_ids: ids that begin with ``<bos>``.
            attention_mask: (B, T), 0 for padding, left or right. Logits at padding are those of the token after the
                text before it, so that texts with padding at the right can be continued.
            past_key_values: the state after the tokens before these, as the model returned it; or ``cache``, as
                transformers calls it since 5.24.
            inputs_embeds: in the place of ids, what ``get_input_embeddings()`` gives for them.
            labels: ids; the loss is the mean cross-entropy of those that have an input before them, without padding,
                ``<bos>`` and -100, in nats.
            **kwargs: ``use_cache``, ``output_hidden_states`` and ``output_attentions`` as in transformers, all false by
                default; others are not used. Hidden states are the inputs of each block and the last output; attentions
                are the weights of each sublayer (``structattn.attention.Explanation``), without gradients.

        Raises:
            ValueError: an id is not known, or the cache is that of another model.
        """
        inputs = self._inputs(input_ids, inputs_embeds)
        padding, cache = padding_of(attention_mask, inputs.shape[1]), cache_of(past_key_values, kwargs)
        if cache is None:
            classes, more = self._process(classes_of, inputs, padding, kwargs)
        else:
            classes, more = cache.layers[0].process(AnyInputs(self.model), inputs, padding), {}
        logits = logits_of_ids(classes if padding is None else padding.repeat_latest(classes))
        loss = None
        if labels is not None:
            if padding is not None:
                first = padding.real.cumsum(1) <= 1  # real or padding before it
                labels = labels.masked_fill((first | ~padding.real).to(labels.device), IGNORED_LABEL)
            loss = mean_cross_entropy(logits[:, :-1], labels[:, 1:])
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE_NAME: cache}, **more)


class StructattnForMaskedLM(OwnModel):
    """A masked language model of any mechanism; the mask's id is ``config.vocab_size``."""

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch time d_model"] | None = None,
        labels: Int[Tensor, "batch time"] | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Return the logits (B, T, vocabulary) of the token at each position.

        Args:
            input_ids: ids.
            attention_mask: (B, T), 0 for padding, left or right.
            inputs_embeds: in the place of ids, what ``get_input_embeddings()`` gives for them.
            labels: ids; the loss is their mean cross-entropy, without padding, ``<bos>`` and -100, in nats.
            **kwargs: ``output_hidden_states`` and ``output_attentions`` as for a causal model; others are not used.
        """
        inputs = self._inputs(input_ids, inputs_embeds)
        classes, more = self._process(classes_of, inputs, padding_of(attention_mask, inputs.shape[1]), kwargs)
        logits = logits_of_ids(classes)
        return MaskedLMOutput(
            loss=None if labels is None else mean_cross_entropy(logits, labels), logits=logits, **more
        )


class StructattnForSequenceClassification(OwnModel):
    """A classifier of texts: W h, where h is the hidden state of the last token, of a masked model that of the first.

    W is (``config.num_labels``, d), without bias.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        output = self.model.output
        size = self.model.embedding.class_embeddings().shape[1] if output is None else output.in_features
        self.score = nn.Linear(size, config.num_labels, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Int[Tensor, "batch time"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch time d_model"] | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return the logits (B, labels).

        Args:
            input_ids: ids.
            attention_mask: (B, T), 0 for padding, left or right.
            inputs_embeds: in the place of ids, what ``get_input_embeddings()`` gives for them.
            labels: (B,), or of several labels a text (B, labels); numbers where ``num_labels`` is 1.
            **kwargs: ``output_hidden_states`` and ``output_attentions`` as for a causal model; others are not used.
        """
        inputs = self._inputs(input_ids, inputs_embeds)
        padding = padding_of(attention_mask, inputs.shape[1])
        x, more = self._process(hidden_states_of, inputs, padding, kwargs)
        x = x if padding is None else padding.to_front(x)
        last = x.shape[1] - 1 if padding is None else (padding.lengths.to(x.device) - 1).clamp(min=0)
        at = 0 if isinstance(self.model, MaskedLanguageModel) else last
        logits = self.score(x[torch.arange(len(x), device=x.device), at])
        loss = None if labels is None else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits, **more)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is getattr(self, "score", None):
            initialization.normal_(module.weight, std=0.02)


def require_known(ids: Tensor, size: int) -> None:
    """Check that ids are below a vocabulary's size; nothing is checked under a compiler.

    Raises:
        ValueError: one is not.
    """
    if not (torch.compiler.is_compiling() or ids.is_meta) and ids.numel() and int(ids.max()) >= size:
        reason = "where a vocabulary has no <unk>, that is the id of words that it does not have"
        raise ValueError(f"id {int(ids.max())} is not in the vocabulary of 0 to {size - 1}; {reason}")


def mean_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats of all labels but -100, ``<pad>`` and ``<bos>``; 0 if there are none."""
    classes = (labels - CLASS_OFFSET).clamp(min=-1).flatten().to(logits.device)
    nats = functional.cross_entropy(
        logits[..., CLASS_OFFSET:].flatten(0, 1).float(), classes, ignore_index=-1, reduction="sum"
    )
    return nats / (classes >= 0).sum().clamp(min=1)
