"""What the training loop needs of a task, and nothing more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.data.batching.pairs import PairBatch
from structattn.data.batching.sequences import Batch, Indices

AnyBatch = TypeVar("AnyBatch", bound=Batch | PairBatch)


@dataclass(frozen=True)
class Scores:
    """How well a model predicts a set of sequences, in nats per symbol, ``<eos>`` counted.

    Args:
        num_sequences: the sequences (or stream windows) that were scored.
        num_tokens: the tokens that were predicted.
        cross_entropy: -log p(set) / num_tokens.
        perplexity: exp(cross_entropy).
        lower_bound: the cross-entropy of the distribution that the set was drawn from, where it is known.
        accuracy: the part of the answers' symbols that is right, where answers are asked for; the mean over lengths.
        bleu: of greedy translations, where that is asked for; 0 to 100.
    """

    num_sequences: int
    num_tokens: int
    cross_entropy: float
    perplexity: float
    lower_bound: float | None = None
    accuracy: float | None = None
    bleu: float | None = None

    @property
    def cross_entropy_difference(self) -> float | None:
        """How far the model is from the best possible; 0 is optimal."""
        return None if self.lower_bound is None else self.cross_entropy - self.lower_bound


class Task(Protocol[AnyBatch]):
    """A task on one prepared folder. All of it is a pure function of the folder, the settings and the seed."""

    def training_batches(self, epoch: int) -> list[Indices]:
        """The batches of an epoch in their order, each as the numbers of its examples."""

    def batch(self, indices: Indices) -> AnyBatch:
        """The training examples of these numbers, as tensors."""

    def loss_sum(self, model: torch.nn.Module, batch: AnyBatch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch: -log p(batch) plus regularisers. See `loss_denominator`."""

    def loss_denominator(self, batch: AnyBatch) -> int:
        """Return what an update's sum of losses is divided by, summed over its batches: sequences or tokens."""

    def num_tokens(self, batch: AnyBatch) -> int:
        """Return the number of tokens that the batch predicts."""

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split; ``after_batch`` is called often and may raise to end it."""
