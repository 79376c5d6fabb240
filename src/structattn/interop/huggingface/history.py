"""Incremental state of a stack, or of a whole model, for a batch with padding anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from structattn.interop.huggingface.padding import Padding
from structattn.support.shapes import Int, Shaped


class Stepping(Protocol):
    """A layer or a whole language model, which processes vectors or ids all at once or step by step."""

    def __call__(self, x: Any, lengths: Any = None) -> Tensor:
        """Process whole sequences (B, T), (B, T, d)."""
        ...

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first step."""
        ...

    def step(self, x_t: Any, state: Any) -> tuple[Tensor, Any]:
        """Process one step; return its output and the new state."""
        ...


@dataclass(frozen=True)
class StateGroup:
    """Members of a batch with the same number of steps so far, which share a state.

    Args:
        members: row indices in the batch.
        state: the layer's state before the pending steps.
        pending: inputs of steps that the state does not include yet; None: no steps. They are processed on demand,
            because whole sequences are faster without a state, which is often never needed.
    """

    members: Int[Tensor, " chosen"]
    state: Any
    pending: Shaped[Tensor, "chosen steps ..."] | None = None

    def select(self, indices: Int[Tensor, " chosen"], members: Int[Tensor, " chosen"]) -> "StateGroup":
        """Return some of the group, in the given order, as ``members`` of another batch."""
        pending = None if self.pending is None else self.pending.index_select(0, indices)
        return StateGroup(members, self.state.select(indices), pending)

    def with_pending(self, chosen: Int[Tensor, " chosen"], pending: Tensor) -> "StateGroup":
        """Return the group of ``chosen`` members before their pending steps."""
        everyone = len(chosen) == len(self.members)
        return StateGroup(self.members[chosen], self.state if everyone else self.state.select(chosen), pending)

    def caught_up(self, layer: Stepping) -> "StateGroup":
        """Return the group after its pending steps."""
        return self if self.pending is None else self.step_by_step(layer)[0]

    def step_by_step(self, layer: Stepping) -> tuple["StateGroup", list[Shaped[Tensor, "chosen ..."]]]:
        """Return the group after its pending steps, and the output of each."""
        assert self.pending is not None
        state, outputs = self.state, []
        for x_t in self.pending.unbind(1):
            y_t, state = layer.step(x_t, state)
            outputs.append(y_t)
        return StateGroup(self.members, state), outputs


@dataclass(frozen=True)
class History:
    """Incremental state after a number of columns: an immutable value.

    Args:
        columns: number of columns so far, padding included.
        batch_size: B.
        groups: a partition of the batch.
    """

    columns: int
    batch_size: int
    groups: tuple[StateGroup, ...]

    def select(self, indices: Int[Tensor, " chosen"]) -> "History":
        """Return the histories of some members of the batch, in the given order, with repetitions."""
        groups = []
        for group in self.groups:
            inside = torch.full((self.batch_size,), -1, device=group.members.device)
            inside[group.members] = torch.arange(len(group.members), device=inside.device)
            chosen = inside[indices.to(inside.device)]
            members = (chosen >= 0).nonzero()[:, 0]
            if len(members):
                groups.append(group.select(chosen[members], members))
        return History(self.columns, len(indices), tuple(groups))

    def caught_up(self, layer: Stepping) -> "History":
        """Return the history without pending steps."""
        return History(self.columns, self.batch_size, tuple(group.caught_up(layer) for group in self.groups))

    def postpone(self, x: Shaped[Tensor, "batch time ..."], padding: Padding | None) -> "History":
        """Return the history after more columns, whose steps are pending; before them, none may be."""
        groups = tuple(
            group.with_pending(chosen, inputs)
            for group in self.groups
            for chosen, inputs in _grouped_by_steps(group.members, x, padding)
        )
        return History(self.columns + x.shape[1], self.batch_size, groups)


def empty_history(layer: Stepping, batch_size: int, device: torch.device) -> History:
    """Return the history before the first column."""
    everyone = torch.arange(batch_size, device=device)
    return History(0, batch_size, (StateGroup(everyone, layer.initial_state(batch_size)),))


def process_next(
    layer: Stepping, history: History, x: Shaped[Tensor, "batch time ..."], padding: Padding | None
) -> tuple[Shaped[Tensor, "batch time ..."], History]:
    """Process more columns step by step; outputs at padding are zeros. Also return the new history."""
    after = history.postpone(x, padding)
    groups, outputs = zip(*(group.step_by_step(layer) for group in after.groups), strict=True)
    some = next((each[0] for each in outputs if each), x[:, 0])
    y = some.new_zeros(*x.shape[:2], *some.shape[1:])
    for group, each in zip(groups, outputs, strict=True):
        for t, y_t in enumerate(each):
            y[group.members, t] = y_t
    return y if padding is None else padding.restore(y), History(after.columns, after.batch_size, groups)


def _grouped_by_steps(members: Tensor, x: Tensor, padding: Padding | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Group ``members`` by their number of steps in ``x``; yield indices into them and their inputs."""
    if padding is None:
        yield torch.arange(len(members), device=members.device), x.index_select(0, members)
        return
    lengths, x = padding.lengths.to(members.device)[members], padding.to_front(x)
    for length in sorted(set(lengths.tolist())):
        chosen = (lengths == length).nonzero()[:, 0]
        yield chosen, x[members[chosen], :length]
