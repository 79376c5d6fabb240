"""What a stack has seen of a batch whose sequences may have begun at different columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from structattn.attention import AttentionLayer
from structattn.huggingface.padding import Padding


@dataclass(frozen=True)
class Group:
    """The members of a batch that have made the same number of steps, which can share a state.

    Args:
        members: their rows in the batch.
        state: the layer's, after all steps but the pending ones.
        pending: inputs of the last steps, which the state has not seen yet: a whole sequence is read faster without
            making a state, and often none is needed.
    """

    members: Int[Tensor, " chosen"]
    state: Any
    pending: Float[Tensor, "chosen steps d_model"]

    def select(self, indices: Int[Tensor, " chosen"], members: Int[Tensor, " chosen"]) -> "Group":
        """Some of the group, in a new order, as these members of another batch."""
        return Group(members, self.state.select(indices), self.pending.index_select(0, indices))

    def up_to_date(self, layer: AttentionLayer) -> "Group":
        """With no step pending."""
        state = self.state
        for x_t in self.pending.unbind(1):
            _, state = layer.step(x_t, state)
        return Group(self.members, state, self.pending[:, :0])


@dataclass(frozen=True)
class StackHistory:
    """All that a stack must know of the columns so far: a value, never mutated.

    Args:
        columns: how many, padding included.
        batch_size: B.
        groups: they share out the batch among them.
    """

    columns: int
    batch_size: int
    groups: tuple[Group, ...]

    def select(self, indices: Int[Tensor, " chosen"]) -> "StackHistory":
        """The histories of some members of the batch, in a new order, repeated at will."""
        groups = []
        for group in self.groups:
            inside = torch.full((self.batch_size,), -1, device=group.members.device)
            inside[group.members] = torch.arange(len(group.members), device=inside.device)
            chosen = inside[indices.to(inside.device)]
            members = (chosen >= 0).nonzero()[:, 0]
            if len(members):
                groups.append(group.select(chosen[members], members))
        return StackHistory(self.columns, len(indices), tuple(groups))


def read_whole(
    layer: AttentionLayer, x: Float[Tensor, "batch time d_model"], padding: Padding | None
) -> Float[Tensor, "batch time d_model"]:
    """The layer's outputs for whole sequences, zeros at padding."""
    if padding is None:
        return layer(x)
    return padding.back(layer(padding.to_front(x), padding.lengths.to(x.device)))


def begin(layer: AttentionLayer, x: Float[Tensor, "batch time d_model"], padding: Padding | None) -> StackHistory:
    """The history after the whole of ``x``, every step of it pending."""
    everyone = torch.arange(x.shape[0], device=x.device)
    groups = [
        Group(everyone[chosen], layer.initial_state(len(chosen)), inputs)
        for chosen, inputs in _by_steps(everyone, x, padding)
    ]
    return StackHistory(x.shape[1], x.shape[0], tuple(groups))


def read_on(
    layer: AttentionLayer, history: StackHistory, x: Float[Tensor, "batch time d_model"], padding: Padding | None
) -> tuple[Float[Tensor, "batch time d_model"], StackHistory]:
    """The layer's outputs for more columns, step by step, zeros at padding; and the history after them."""
    groups, outputs = [], []
    for before in history.groups:
        group = before.up_to_date(layer)
        for chosen, inputs in _by_steps(group.members, x, padding):
            state = group.state if len(chosen) == len(group.members) else group.state.select(chosen)
            y, state = _steps(layer, inputs, state)
            groups.append(Group(group.members[chosen], state, inputs[:, :0]))
            outputs.append(functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])))
    rows = torch.cat([group.members for group in groups]).argsort()
    y = torch.cat(outputs).index_select(0, rows)
    history = StackHistory(history.columns + x.shape[1], history.batch_size, tuple(groups))
    return y if padding is None else padding.back(y), history


def _by_steps(members: Tensor, x: Tensor, padding: Padding | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of ``members`` that make equally many steps in ``x``, as indices, and their inputs for these steps."""
    if padding is None:
        yield torch.arange(len(members), device=members.device), x.index_select(0, members)
        return
    lengths, x = padding.lengths.to(members.device)[members], padding.to_front(x)
    for length in sorted(set(lengths.tolist())):
        chosen = (lengths == length).nonzero()[:, 0]
        yield chosen, x[members[chosen], :length]


def _steps(layer: AttentionLayer, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1) if outputs else x, state
