"""Incremental state of a stack for a batch with padding anywhere, and the cache that carries it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from structattn.attention import AttentionLayer
from structattn.interop.huggingface.padding import Padding
from structattn.support.shapes import Float, Int


@dataclass(frozen=True)
class StateGroup:
    """Members of a batch with the same number of steps so far, which share a state.

    Args:
        members: row indices in the batch.
        state: the layer's state before the pending steps.
        pending: inputs of steps that the state does not include yet. They are processed on demand, because whole
            sequences are faster without a state, which is often never needed.
    """

    members: Int[Tensor, " chosen"]
    state: Any
    pending: Float[Tensor, "chosen steps d_model"]

    def select(self, indices: Int[Tensor, " chosen"], members: Int[Tensor, " chosen"]) -> "StateGroup":
        """Return some of the group, in the given order, as ``members`` of another batch."""
        return StateGroup(members, self.state.select(indices), self.pending.index_select(0, indices))

    def without_pending(self, layer: AttentionLayer) -> "StateGroup":
        """Return the group after its pending steps."""
        state = self.state
        for x_t in self.pending.unbind(1):
            _, state = layer.step(x_t, state)
        return StateGroup(self.members, state, self.pending[:, :0])


@dataclass(frozen=True)
class StackHistory:
    """Incremental state of a stack after a number of columns: an immutable value.

    Args:
        columns: number of columns so far, padding included.
        batch_size: B.
        groups: a partition of the batch.
    """

    columns: int
    batch_size: int
    groups: tuple[StateGroup, ...]

    def select(self, indices: Int[Tensor, " chosen"]) -> "StackHistory":
        """Return the histories of some members of the batch, in the given order, with repetitions."""
        groups = []
        for group in self.groups:
            inside = torch.full((self.batch_size,), -1, device=group.members.device)
            inside[group.members] = torch.arange(len(group.members), device=inside.device)
            chosen = inside[indices.to(inside.device)]
            members = (chosen >= 0).nonzero()[:, 0]
            if len(members):
                groups.append(group.select(chosen[members], members))
        return StackHistory(self.columns, len(indices), tuple(groups))


def initial_history(
    layer: AttentionLayer, x: Float[Tensor, "batch time d_model"], padding: Padding | None
) -> StackHistory:
    """Return the history after whole sequences, with all steps pending."""
    everyone = torch.arange(x.shape[0], device=x.device)
    groups = [
        StateGroup(everyone[chosen], layer.initial_state(len(chosen)), inputs)
        for chosen, inputs in _grouped_by_steps(everyone, x, padding)
    ]
    return StackHistory(x.shape[1], x.shape[0], tuple(groups))


def process_next(
    layer: AttentionLayer, history: StackHistory, x: Float[Tensor, "batch time d_model"], padding: Padding | None
) -> tuple[Float[Tensor, "batch time d_model"], StackHistory]:
    """Process more columns step by step; outputs at padding are zeros. Also return the new history."""
    groups, outputs = [], []
    for before in history.groups:
        group = before.without_pending(layer)
        for chosen, inputs in _grouped_by_steps(group.members, x, padding):
            state = group.state if len(chosen) == len(group.members) else group.state.select(chosen)
            y, state = _run_steps(layer, inputs, state)
            groups.append(StateGroup(group.members[chosen], state, inputs[:, :0]))
            outputs.append(functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])))
    rows = torch.cat([group.members for group in groups]).argsort()
    y = torch.cat(outputs).index_select(0, rows)
    history = StackHistory(history.columns + x.shape[1], history.batch_size, tuple(groups))
    return y if padding is None else padding.restore(y), history


def _grouped_by_steps(members: Tensor, x: Tensor, padding: Padding | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Group ``members`` by their number of steps in ``x``; yield indices into them and their inputs."""
    if padding is None:
        yield torch.arange(len(members), device=members.device), x.index_select(0, members)
        return
    lengths, x = padding.lengths.to(members.device)[members], padding.to_front(x)
    for length in sorted(set(lengths.tolist())):
        chosen = (lengths == length).nonzero()[:, 0]
        yield chosen, x[members[chosen], :length]


def _run_steps(layer: AttentionLayer, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1) if outputs else x, state


class StackCacheLayer(DynamicLayer):
    """Keys, values and stack history of one layer.

    It cannot be cropped, because the steps of a stack cannot be undone. Assisted generation and prompt lookup, which
    crop, raise an error.
    """

    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.stack: StackHistory | None = None

    def reset(self) -> None:
        """Clear keys, values and history."""
        super().reset()
        self.stack = None

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error if there is anything to remove.

        Raises:
            NotImplementedError: ``tokens_to_remove`` is not 0.
        """
        if tokens_to_remove:
            raise NotImplementedError(
                "the cache of a model with stacks cannot be cropped; generate without an assistant model and without "
                "prompt lookup"
            )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let sequence i continue from the state of sequence ``beam_idx[i]``."""
        super().reorder_cache(beam_idx)
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence ``repeats`` times, next to each other."""
        super().batch_repeat_interleave(repeats)
        self._select(self._rows().repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given sequences; ``indices`` may also be a mask."""
        super().batch_select_indices(indices)
        self._select(self._rows()[indices.cpu()])

    def _rows(self) -> Tensor:
        return torch.arange(0 if self.stack is None else self.stack.batch_size)

    def _select(self, indices: Tensor) -> None:
        self.stack = None if self.stack is None else self.stack.select(indices)


def stack_cache_layer(cache: Cache | None, index: int) -> StackCacheLayer | None:
    """Return layer ``index`` of the cache, after replacing an empty layer by a ``StackCacheLayer``.

    Raises:
        ValueError: the cache is not dynamic, or was filled by a model without stacks.
    """
    if cache is None:
        return None
    layers = (cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache).layers
    while len(layers) <= index:  # without a configuration, a cache creates its layers lazily
        layers.append(DynamicLayer())
    if type(layers[index]) is DynamicLayer and layers[index].get_seq_length() == 0:
        layers[index] = StackCacheLayer()
    layer = layers[index]
    if not isinstance(layer, StackCacheLayer):
        raise ValueError(
            f"layer {index} of the cache is a {type(layer).__name__} of {layer.get_seq_length()} positions; a model "
            "with stacks needs a DynamicCache that only it has filled"
        )
    return layer
