"""RoBERTa with a stack after each layer."""

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import (
    Cache,
    RobertaForCausalLM,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    RobertaPreTrainedModel,
)
from transformers.models.roberta.modeling_roberta import RobertaLayer

from structattn.interop.huggingface.cache import stack_cache_layer
from structattn.interop.huggingface.configuration import StackRobertaConfig
from structattn.interop.huggingface.padding import Padding, padding_from_arguments
from structattn.interop.huggingface.sublayer import StackSublayer
from structattn.settings.huggingface import stack_from, stack_layers


class StackRobertaLayer(RobertaLayer):
    """A RoBERTa layer followed by a stack, whose input is the output of the last layer norm."""

    def __init__(self, config: StackRobertaConfig, layer_idx: int, has_stack: bool) -> None:
        super().__init__(config, layer_idx=layer_idx)
        self.layer_idx = layer_idx
        self.stack = StackSublayer(stack_from(config.stack), config.hidden_size) if has_stack else None

    def forward(
        self,
        hidden_states: Tensor,
        *args: Any,
        past_key_values: Cache | None = None,
        stack_padding: Padding | None = None,
        **kwargs: Any,
    ) -> Any:
        """As in transformers, with the padding of the inputs in ``stack_padding``."""
        if self.stack is None:
            return super().forward(hidden_states, *args, past_key_values=past_key_values, **kwargs)
        cache = stack_cache_layer(past_key_values, self.layer_idx)
        hidden_states = super().forward(hidden_states, *args, past_key_values=past_key_values, **kwargs)
        return self.stack(hidden_states, stack_padding, cache)


class StackRobertaModel(RobertaModel):
    """``RobertaModel`` with the stacks of its configuration: h <- h + S(h) after each layer that has one.

    Li et al. (2024) insert a stack pointer into every layer. Stacks are causal, even in an encoder. They skip the
    padding of ``attention_mask``. In a decoder, a ``DynamicCache`` holds their states.
    """

    config_class = StackRobertaConfig
    _no_split_modules: ClassVar[list[str]] = ["RobertaEmbeddings", "StackRobertaLayer"]

    def __init__(self, config: StackRobertaConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        chosen = stack_layers(stack_from(config.stack), config.num_hidden_layers)
        self.encoder.layer = nn.ModuleList(
            StackRobertaLayer(config, i, i in chosen) for i in range(config.num_hidden_layers)
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """As in transformers.

        Raises:
            ValueError: the mask or cache is not supported, or rows are packed.
        """
        return super().forward(
            input_ids,
            attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            stack_padding=padding_from_arguments(attention_mask, position_ids, input_ids, inputs_embeds),
            **kwargs,
        )

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, StackSublayer):
            module.initialize()


class _OnStackRoberta(RobertaPreTrainedModel):
    """Replaces the ``RobertaModel`` of a model with a head by a ``StackRobertaModel``."""

    config_class = StackRobertaConfig
    roberta: RobertaModel

    def __init__(self, config: StackRobertaConfig) -> None:
        super().__init__(config)
        self.roberta = StackRobertaModel(config, add_pooling_layer=self.roberta.pooler is not None)
        self.post_init()


class StackRobertaForMaskedLM(_OnStackRoberta, RobertaForMaskedLM):
    """``RobertaForMaskedLM`` on a ``StackRobertaModel``."""


class StackRobertaForCausalLM(_OnStackRoberta, RobertaForCausalLM):
    """``RobertaForCausalLM`` on a ``StackRobertaModel``; its configuration needs ``is_decoder=True``."""


class StackRobertaForSequenceClassification(_OnStackRoberta, RobertaForSequenceClassification):
    """``RobertaForSequenceClassification`` on a ``StackRobertaModel``."""


class StackRobertaForTokenClassification(_OnStackRoberta, RobertaForTokenClassification):
    """``RobertaForTokenClassification`` on a ``StackRobertaModel``."""
