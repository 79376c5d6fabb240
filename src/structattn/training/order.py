"""Data order: the batches of the next update, a pure function of epoch and position."""

from dataclasses import dataclass, field
from typing import Any

from structattn.data.batching.sequences import Indices
from structattn.tasks.task import Task


@dataclass
class DataOrder:
    """The batches of the current epoch.

    Args:
        task: the task that provides them.
        gradient_accumulation_steps: batches in an update; the last update of an epoch may have fewer.
    """

    task: Task[Any]
    gradient_accumulation_steps: int
    _epoch: int | None = None
    _batches: list[Indices] = field(default_factory=list)

    def batches_of(self, epoch: int) -> list[Indices]:
        """Return all batches of an epoch; the last epoch requested is cached."""
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self.task.training_batches(epoch)
        return self._batches

    def next_batches(self, epoch: int, position: int) -> list[Indices]:
        """Return the batches of the update that starts at this position."""
        return self.batches_of(epoch)[position : position + self.gradient_accumulation_steps]

    def updates_in_epoch(self, epoch: int) -> int:
        """Return the number of updates in an epoch."""
        return -(-len(self.batches_of(epoch)) // self.gradient_accumulation_steps)
