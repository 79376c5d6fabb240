"""GPT-2 with a stack after each block."""

from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import (
    Cache,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
    GPT2PreTrainedModel,
)
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from structattn.interop.huggingface.cache import stack_cache_layer
from structattn.interop.huggingface.configuration import StackGPT2Config
from structattn.interop.huggingface.padding import Padding, padding_from_arguments
from structattn.interop.huggingface.sublayer import StackSublayer
from structattn.settings.huggingface import stack_from, stack_layers


class StackGPT2Block(GPT2Block):
    """A GPT-2 block followed by a stack, whose input is the block's output before any layer norm."""

    def __init__(self, config: StackGPT2Config, layer_idx: int, has_stack: bool) -> None:
        super().__init__(config, layer_idx=layer_idx)
        self.layer_idx = layer_idx
        self.stack = StackSublayer(stack_from(config.stack), config.hidden_size) if has_stack else None

    def forward(
        self,
        hidden_states: Tensor,
        past_key_values: Cache | None = None,
        *args: Any,
        stack_padding: Padding | None = None,
        **kwargs: Any,
    ) -> Any:
        """As in transformers, with the padding of the inputs in ``stack_padding``."""
        if self.stack is None:
            return super().forward(hidden_states, past_key_values, *args, **kwargs)
        cache = stack_cache_layer(past_key_values, self.layer_idx)
        hidden_states = super().forward(hidden_states, past_key_values, *args, **kwargs)
        return self.stack(hidden_states, stack_padding, cache)


class StackGPT2Model(GPT2Model):
    """``GPT2Model`` with the stacks of its configuration: h <- h + S(h) after each block that has one.

    Li et al. (2024) insert a stack pointer into every layer. Stacks skip the padding of
    ``attention_mask``, left or right. A ``DynamicCache`` holds their states: generation takes one step per token.
    """

    config_class = StackGPT2Config
    _no_split_modules: ClassVar[list[str]] = ["StackGPT2Block"]

    def __init__(self, config: StackGPT2Config) -> None:
        super().__init__(config)
        chosen = stack_layers(stack_from(config.stack), config.num_hidden_layers)
        self.h = nn.ModuleList(StackGPT2Block(config, i, i in chosen) for i in range(config.num_hidden_layers))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
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
            past_key_values,
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


class _OnStackGPT2(GPT2PreTrainedModel):
    """Replaces the ``GPT2Model`` of a model with a head by a ``StackGPT2Model``."""

    config_class = StackGPT2Config

    def __init__(self, config: StackGPT2Config) -> None:
        super().__init__(config)
        self.transformer = StackGPT2Model(config)
        self.post_init()


class StackGPT2LMHeadModel(_OnStackGPT2, GPT2LMHeadModel):
    """``GPT2LMHeadModel`` on a ``StackGPT2Model``."""


class StackGPT2ForSequenceClassification(_OnStackGPT2, GPT2ForSequenceClassification):
    """``GPT2ForSequenceClassification`` on a ``StackGPT2Model``."""


class StackGPT2ForTokenClassification(_OnStackGPT2, GPT2ForTokenClassification):
    """``GPT2ForTokenClassification`` on a ``StackGPT2Model``."""
