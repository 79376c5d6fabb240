"""The order of the data: which batches the next update consumes, as a pure function of epoch and position."""

from dataclasses import dataclass, field
from typing import Any

from structattn.data.batching.sequences import Indices
from structattn.tasks.task import Task


@dataclass
class DataOrder:
    """The batches of the epoch at hand.

    Args:
        task: whose batches.
        gradient_accumulation_steps: batches in an update; the last update of an epoch may have fewer.
    """

    task: Task[Any]
    gradient_accumulation_steps: int
    _epoch: int | None = None
    _batches: list[Indices] = field(default_factory=list)

    def batches_of(self, epoch: int) -> list[Indices]:
        """All batches of an epoch; kept until another epoch is asked for."""
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self.task.training_batches(epoch)
        return self._batches

    def next_batches(self, epoch: int, position: int) -> list[Indices]:
        """The batches of the update that begins at this position."""
        return self.batches_of(epoch)[position : position + self.gradient_accumulation_steps]

    def updates_in_epoch(self, epoch: int) -> int:
        """The number of updates that an epoch takes."""
        return -(-len(self.batches_of(epoch)) // self.gradient_accumulation_steps)
