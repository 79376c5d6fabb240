"""Stacks after the blocks of any model of transformers that has one list of blocks."""

import inspect
import threading
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel, initialization
from transformers.modeling_layers import GradientCheckpointingLayer

from structattn.attention import AttentionLayer
from structattn.interop.huggingface.cache import StackCacheLayer, stack_cache_layer
from structattn.interop.huggingface.padding import Padding, padding_from_arguments, process_sequences
from structattn.models.builders.mechanisms import build_stack
from structattn.settings.huggingface import Stack, stack_layers
from structattn.support.shapes import Float


class StackSublayer(nn.Module):
    """h <- h + S(h), or h <- h + g S(h) (Li et al. 2024, section 3.3, equation 26): no layer norm, no dropout.

    Args:
        stack: settings of S and of the gate g, a scalar that is 0 at first.
        d_model: the size of h.
        layer: the index of the block that it follows.
    """

    attention: AttentionLayer

    def __init__(self, stack: Stack, d_model: int, layer: int) -> None:
        super().__init__()
        self.build = partial(StackSublayer, stack, d_model, layer)
        self.attention = build_stack(d_model, stack)
        self.gate = nn.Parameter(torch.zeros(1)) if stack.gate else None
        self.layer = layer

    def forward(
        self, h: Float[Tensor, "batch time d_model"], padding: Padding | None, cache: StackCacheLayer | None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process the positions after those in the cache; padding is unchanged.

        Raises:
            ValueError: the cache holds positions that the stack has not processed.
        """
        y = (
            process_sequences(self.attention, h, padding)
            if cache is None
            else cache.process(self.attention, h, padding)
        )
        return h + (y if self.gate is None else self.gate * y)

    def initialize(self) -> None:
        """Give weights that were not loaded what the constructor sets; after the meta device they are any memory."""
        for parameter, constructed in zip(self.parameters(), self.build().parameters(), strict=True):
            initialization.copy_(parameter, constructed)


class _RunningCall(threading.local):
    """The padding of the inputs of the call of a model that is running in this thread, for its blocks."""

    padding: Padding | None = None

    def __reduce__(self) -> tuple[type["_RunningCall"], tuple[()]]:
        """Copy and pickle without the calls that are running, which threading.local does not do itself."""
        return _RunningCall, ()


class _FollowedByStack(nn.Module):
    """A block of transformers followed by a stack, or by none, whose input is the block's output."""

    stack: StackSublayer | None
    running_call: _RunningCall

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the block's own class: this one is made at run time, and is not found by its name."""
        return _new_block, (type(self).__bases__[1],), self.__dict__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give ``forward`` the padding as an argument, since gradient checkpointing repeats it after the call."""
        return super().__call__(*args, stack_padding=self.running_call.padding, **kwargs)

    def forward(self, *args: Any, stack_padding: Padding | None, **kwargs: Any) -> Any:
        """As in transformers, with the padding of the model's inputs in ``stack_padding``."""
        if self.stack is None:
            return super().forward(*args, **kwargs)
        cache = next((each for each in (*args, *kwargs.values()) if isinstance(each, Cache)), None)
        cache = stack_cache_layer(cache, self.stack.layer)
        outputs = super().forward(*args, **kwargs)
        if isinstance(outputs, tuple):
            return self.stack(outputs[0], stack_padding, cache), *outputs[1:]
        return self.stack(outputs, stack_padding, cache)


def insert_stacks(model: PreTrainedModel, stack: Stack) -> list[StackSublayer]:
    """Let stacks follow the blocks of a model, and return them, first layer first, as constructed.

    A block becomes one of a subclass, as ``fully_shard`` of PyTorch does it, and not one with a hook: gradient
    checkpointing then covers its stack.

    Args:
        model: a model whose base model has one list of blocks.
        stack: the settings.

    Raises:
        ValueError: the model is of another structure, or ``stack`` names layers that it does not have.
    """
    blocks = _blocks_of(model)
    inner = [each for each in model.modules() if isinstance(each, PreTrainedModel) and blocks in each.modules()][-1]
    names, running_call = tuple(inspect.signature(type(inner).forward).parameters)[1:], _RunningCall()
    chosen, config = stack_layers(stack, len(blocks)), model.config.get_text_config()
    for index, block in enumerate(blocks):
        weight = next(block.parameters())
        block.__class__ = _followed_by_stack(block.__class__)
        block.stack, block.running_call = None, running_call
        if index in chosen:
            block.stack = StackSublayer(stack, config.hidden_size, index).to(weight.device, model.dtype)
    inner.register_forward_pre_hook(partial(_begin, running_call, names), with_kwargs=True)
    inner.register_forward_hook(partial(_end, running_call))
    return [block.stack for block in blocks if block.stack is not None]


@cache
def _followed_by_stack(block_class: Any) -> Any:
    """Return the subclass under the same name, by which users of transformers tell what not to split or to wrap."""
    return type(block_class.__name__, (_FollowedByStack, block_class), {"__module__": __name__})


def _new_block(block_class: Any) -> Any:
    followed = _followed_by_stack(block_class)
    return followed.__new__(followed)


def _blocks_of(model: PreTrainedModel) -> Any:
    lists = {
        name: each
        for name, each in model.base_model.named_modules()
        if isinstance(each, nn.ModuleList)
        and len(each)
        and all(isinstance(x, GradientCheckpointingLayer) for x in each)
    }
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    if [len(each) for each in lists.values()] != [count]:
        found = ", ".join(f"{name} of {len(each)}" for name, each in lists.items()) or "none"
        raise ValueError(
            f"stacks cannot be inserted into a {type(model).__name__}; expected one list of num_hidden_layers {count} "
            f"blocks, found {found}"
        )
    (blocks,) = lists.values()
    return blocks


def _begin(call: _RunningCall, names: tuple[str, ...], model: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Find the padding of the inputs.

    Raises:
        ValueError: the mask or cache is not supported, or rows are packed.
    """
    given = dict(zip(names, args, strict=False)) | kwargs
    inputs = (given.get(name) for name in ("attention_mask", "position_ids", "input_ids", "inputs_embeds"))
    call.padding = padding_from_arguments(*inputs)


def _end(call: _RunningCall, model: nn.Module, args: Any, outputs: Any) -> None:
    call.padding = None
