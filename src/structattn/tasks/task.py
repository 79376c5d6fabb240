"""The protocol of a training task, and its validation scores."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch, Indices

BatchT = TypeVar("BatchT", bound=Batch | PairBatch)

LARGEST_EXPONENT = 709.0  # exp of more overflows a float64


@dataclass(frozen=True)
class Scores:
    """Scores of a model on a set of sequences; cross-entropies are in nats per token, ``<eos>`` included.

    Args:
        num_sequences: the number of sequences (or stream windows) scored.
        num_tokens: the number of tokens predicted.
        cross_entropy: -log p(set) / num_tokens.
        perplexity: exp(cross_entropy).
        lower_bound: the cross-entropy of the distribution that the set was drawn from, if known.
        accuracy: the fraction of correct answer tokens, averaged over lengths; transduction only.
        bleu: BLEU of greedy translations, 0 to 100; translation with ``select_by: bleu`` only.
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
        """cross_entropy - lower_bound; 0 is optimal."""
        return None if self.lower_bound is None else self.cross_entropy - self.lower_bound


def perplexity(cross_entropy: float) -> float:
    """Return exp(cross_entropy), or infinity if that overflows a float."""
    return math.inf if cross_entropy > LARGEST_EXPONENT else math.exp(cross_entropy)


class Task(Protocol[BatchT]):
    """A task on one prepared folder. Every result is a pure function of the folder, the settings and the seed."""

    def training_batches(self, epoch: int) -> list[Indices]:
        """Return the batches of an epoch in training order, each as the indices of its examples."""

    def batch(self, indices: Indices) -> BatchT:
        """Return the training examples with these indices as tensors."""

    def loss_sum(self, model: torch.nn.Module, batch: BatchT) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch: -log p(batch) plus regularizers. See `loss_denominator`."""

    def loss_denominator(self, batch: BatchT) -> int:
        """Return the batch's share of the loss denominator: its number of sequences or of tokens.

        The loss of an update is Σ loss_sum / Σ loss_denominator over its batches.
        """

    def num_tokens(self, batch: BatchT) -> int:
        """Return the number of tokens that the batch predicts."""

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split; ``after_batch`` is called after each batch and may raise to abort."""


AnyTask: TypeAlias = Task[Any]
"""A task whose batch type only the task itself knows."""
