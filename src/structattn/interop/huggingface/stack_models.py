"""GPT-2 and RoBERTa with a stack after each layer, and the insertion of stacks into existing models."""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    Cache,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
    PreTrainedModel,
    RobertaForCausalLM,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    initialization,
)
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.roberta.modeling_roberta import RobertaLayer

from structattn.attention import AttentionLayer
from structattn.interop.huggingface.cache import StackCacheLayer, initial_history, process_next, stack_cache_layer
from structattn.interop.huggingface.configuration import StackGPT2Config, StackRobertaConfig
from structattn.interop.huggingface.padding import Padding, padding_from_arguments, process_sequences
from structattn.interop.huggingface.remote_code import SavedWithCode
from structattn.models.builders.mechanisms import build_stack
from structattn.settings.huggingface import Stack, stack_from, stack_layers
from structattn.support.shapes import Float


class StackSublayer(nn.Module):
    """h <- h + S(h), or h <- h + g S(h) (Li et al. 2024, section 3.3, equation 26): no layer norm, no dropout.

    Args:
        stack: settings of S and of the gate g.
        d_model: the size of h.
    """

    attention: AttentionLayer

    def __init__(self, stack: Stack, d_model: int) -> None:
        super().__init__()
        self.attention = build_stack(d_model, stack)
        self.gate = nn.Parameter(torch.zeros(1)) if stack.gate else None

    def forward(
        self, h: Float[Tensor, "batch time d_model"], padding: Padding | None, cache: StackCacheLayer | None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process the positions after those in the cache; padding is unchanged.

        Raises:
            ValueError: the cache holds positions that the stack has not processed.
        """
        y = self._attend(h, padding, cache)
        return h + (y if self.gate is None else self.gate * y)

    def initialize(self) -> None:
        """Set the gate and the stack's bottom vector to zero, unless they were loaded."""
        for parameter in [self.gate, getattr(self.attention, "bottom", None)]:
            if parameter is not None:
                initialization.zeros_(parameter)

    def _attend(self, h: Tensor, padding: Padding | None, cache: StackCacheLayer | None) -> Tensor:
        if cache is None:
            return process_sequences(self.attention, h, padding)
        seen = 0 if cache.stack is None else cache.stack.columns
        if seen + h.shape[1] != cache.get_seq_length():
            raise ValueError(
                f"the cache holds {cache.get_seq_length()} positions; expected {seen + h.shape[1]}: {seen} that the "
                f"stack has processed and {h.shape[1]} new ones"
            )
        if cache.stack is None:
            cache.stack = initial_history(self.attention, h, padding)
            return process_sequences(self.attention, h, padding)
        y, cache.stack = process_next(self.attention, cache.stack, h, padding)
        return y


class _FollowedByStack(nn.Module):
    """A layer of transformers followed by a stack, whose input is the layer's output."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx=layer_idx)
        stack = stack_from(config.stack)
        chosen = layer_idx in stack_layers(stack, config.num_hidden_layers)
        self.layer_idx = layer_idx
        self.stack = StackSublayer(stack, config.hidden_size) if chosen else None

    def forward(self, hidden_states: Tensor, *args: Any, stack_padding: Padding | None = None, **kwargs: Any) -> Any:
        """As in transformers, with the padding of the inputs in ``stack_padding``."""
        if self.stack is None:
            return super().forward(hidden_states, *args, **kwargs)
        given = [*args, *kwargs.values()]  # GPT-2 passes the cache by position, RoBERTa by name
        cache = stack_cache_layer(next((each for each in given if isinstance(each, Cache)), None), self.layer_idx)
        return self.stack(super().forward(hidden_states, *args, **kwargs), stack_padding, cache)


class StackGPT2Block(_FollowedByStack, GPT2Block):
    """A GPT-2 block followed by a stack, whose input is the block's output before any layer norm."""


class StackRobertaLayer(_FollowedByStack, RobertaLayer):
    """A RoBERTa layer followed by a stack, whose input is the output of the last layer norm."""


class _WithStacks(SavedWithCode, PreTrainedModel):
    """Tells the layers of a base model where padding is, and initialises their stacks."""

    first_arguments: ClassVar[tuple[str, ...]]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As in transformers.

        Raises:
            ValueError: the mask or cache is not supported, or rows are packed.
        """
        kwargs |= dict(zip(self.first_arguments, args, strict=False))
        names = ("attention_mask", "position_ids", "input_ids", "inputs_embeds")
        padding = padding_from_arguments(*(kwargs.get(name) for name in names))
        return super().forward(**kwargs, stack_padding=padding)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, StackSublayer):
            module.initialize()


class StackGPT2Model(_WithStacks, GPT2Model):
    """``GPT2Model`` with the stacks of its configuration: h <- h + S(h) after each block that has one.

    Li et al. (2024) insert a stack pointer into every layer. Stacks skip the padding of
    ``attention_mask``, left or right. A ``DynamicCache`` holds their states: generation takes one step per token.
    """

    config_class = StackGPT2Config
    first_arguments = "input_ids", "past_key_values", "attention_mask"
    _no_split_modules: ClassVar[list[str]] = ["StackGPT2Block"]

    def __init__(self, config: StackGPT2Config) -> None:
        super().__init__(config)
        self.h = nn.ModuleList(StackGPT2Block(config, index) for index in range(config.num_hidden_layers))
        self.post_init()


class StackRobertaModel(_WithStacks, RobertaModel):
    """``RobertaModel`` with the stacks of its configuration: h <- h + S(h) after each layer that has one.

    Li et al. (2024) insert a stack pointer into every layer. Stacks are causal, even in an encoder. They skip the
    padding of ``attention_mask``. In a decoder, a ``DynamicCache`` holds their states.
    """

    config_class = StackRobertaConfig
    first_arguments = "input_ids", "attention_mask"
    _no_split_modules: ClassVar[list[str]] = ["RobertaEmbeddings", "StackRobertaLayer"]

    def __init__(self, config: StackRobertaConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        layers = (StackRobertaLayer(config, index) for index in range(config.num_hidden_layers))
        self.encoder.layer = nn.ModuleList(layers)
        self.post_init()


class _OnStackGPT2(SavedWithCode, PreTrainedModel):
    """Replaces the ``GPT2Model`` of a model with a head by a ``StackGPT2Model``."""

    config_class = StackGPT2Config

    def __init__(self, config: StackGPT2Config) -> None:
        super().__init__(config)
        self.transformer = StackGPT2Model(config)
        self.post_init()


class _OnStackRoberta(SavedWithCode, PreTrainedModel):
    """Replaces the ``RobertaModel`` of a model with a head by a ``StackRobertaModel``."""

    config_class = StackRobertaConfig
    roberta: RobertaModel

    def __init__(self, config: StackRobertaConfig) -> None:
        super().__init__(config)
        self.roberta = StackRobertaModel(config, add_pooling_layer=self.roberta.pooler is not None)
        self.post_init()


class StackGPT2LMHeadModel(_OnStackGPT2, GPT2LMHeadModel):
    """``GPT2LMHeadModel`` on a ``StackGPT2Model``."""

    def __init__(self, config: StackGPT2Config) -> None:
        super().__init__(config)
        self.loss_type = "ForCausalLM"  # else the Trainer counts first tokens, which nothing predicts


class StackGPT2ForSequenceClassification(_OnStackGPT2, GPT2ForSequenceClassification):
    """``GPT2ForSequenceClassification`` on a ``StackGPT2Model``."""


class StackGPT2ForTokenClassification(_OnStackGPT2, GPT2ForTokenClassification):
    """``GPT2ForTokenClassification`` on a ``StackGPT2Model``."""


class StackRobertaForMaskedLM(_OnStackRoberta, RobertaForMaskedLM):
    """``RobertaForMaskedLM`` on a ``StackRobertaModel``."""


class StackRobertaForCausalLM(_OnStackRoberta, RobertaForCausalLM):
    """``RobertaForCausalLM`` on a ``StackRobertaModel``; its configuration needs ``is_decoder=True``."""


class StackRobertaForSequenceClassification(_OnStackRoberta, RobertaForSequenceClassification):
    """``RobertaForSequenceClassification`` on a ``StackRobertaModel``."""


class StackRobertaForTokenClassification(_OnStackRoberta, RobertaForTokenClassification):
    """``RobertaForTokenClassification`` on a ``StackRobertaModel``."""


CLASSES: dict[Any, tuple[type[PreTrainedModel], ...]] = {
    AutoModel: (StackGPT2Model, StackRobertaModel),
    AutoModelForCausalLM: (StackGPT2LMHeadModel, StackRobertaForCausalLM),
    AutoModelForMaskedLM: (StackRobertaForMaskedLM,),
    AutoModelForSequenceClassification: (StackGPT2ForSequenceClassification, StackRobertaForSequenceClassification),
    AutoModelForTokenClassification: (StackGPT2ForTokenClassification, StackRobertaForTokenClassification),
}
"""AutoModel -> the classes that it builds."""


def add_stack_attention(model: PreTrainedModel, stack: Stack | dict[str, Any] | None = None) -> PreTrainedModel:
    """Return a copy of a model with stacks inserted.

    Parameters of the stacks are initialised by the model's own rule. With ``gate=True`` the new model's outputs equal
    those of ``model`` exactly until it is trained.

    Args:
        model: a GPT-2 or RoBERTa without stacks; not modified.
        stack: which mechanism, in which layers (``PointerStack``, ``SuperpositionStack``, ``NondeterministicStack``, or
            a dict with the same keys); None: a stack pointer in every layer, as in the paper.

    Returns:
        The model, with the same device, dtype and mode.

    Raises:
        ValueError: ``model`` is of another class, or the settings are invalid.
    """
    stacked_class = _class_for(model)
    settings = {**model.config.to_dict(), "model_type": stacked_class.config_class.model_type, "stack": stack}
    config = stacked_class.config_class.from_dict(settings, attn_implementation=model.config._attn_implementation)
    stacked = stacked_class(config).to(device=model.device, dtype=model.dtype).train(model.training)
    keys = stacked.load_state_dict(model.state_dict(), strict=False)
    if keys.unexpected_keys or any(".stack." not in key for key in keys.missing_keys):
        raise ValueError(f"the weights of a {type(model).__name__} do not fit a {stacked_class.__name__}: {keys}")
    if model.can_generate():
        stacked.generation_config = copy.deepcopy(model.generation_config)
    return stacked


def _class_for(model: PreTrainedModel) -> Any:
    known = [model_class for classes in CLASSES.values() for model_class in classes]
    for model_class in known:
        if type(model) in model_class.__bases__:
            return model_class
    expected = ", ".join(model_class.__name__.removeprefix("Stack") for model_class in known)
    raise ValueError(f"stacks cannot be inserted into a {type(model).__name__}; expected one of {expected}")
