"""All tasks that predict the next token: they differ in their examples, and in whether a lower bound is known."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.data.batching.sequences import Batch, Indices
from structattn.tasks.next_token.examples import Examples
from structattn.tasks.next_token.scores import score_batches
from structattn.tasks.objective import NATS, Objective
from structattn.tasks.sequence_loss import loss_denominator, num_target_tokens
from structattn.tasks.task import Scores


@dataclass(frozen=True)
class NextTokenTask:
    """Predict each symbol, and the end, from what stands before it. See `structattn.tasks.task.Task`.

    Args:
        train: what is learnt from.
        valid: what is scored during training.
        loss: what the summed nats of an update are divided by: its sequences, or its symbols.
        lower_bound: the entropy of the validation split's distribution, nats per symbol, where it is known.
        objective: what training makes small.
    """

    train: Examples
    valid: Examples
    loss: Literal["sequence_sum", "token_mean"]
    lower_bound: float | None = None
    objective: Objective = NATS

    def training_batches(self, epoch: int) -> list[Indices]:
        """The shuffled batches of an epoch."""
        return self.train.training_order(epoch)

    def batch(self, indices: Indices) -> Batch:
        """The training examples of these numbers."""
        return self.train.batch(indices)

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """What training makes small: -log p(batch), if nothing else is asked for."""
        return self.objective(model, batch)

    def loss_denominator(self, batch: Batch) -> int:
        """The batch's sequences or symbols."""
        return loss_denominator(self.loss, batch)

    def num_tokens(self, batch: Batch) -> int:
        """The batch's symbols."""
        return num_target_tokens(batch)

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split."""
        batches = (self.valid.batch(indices) for indices in self.valid.scoring_order())
        return replace(score_batches(model, batches, after_batch), lower_bound=self.lower_bound)
