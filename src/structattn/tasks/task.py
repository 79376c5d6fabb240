"""The protocol of a training task, and its validation scores."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from structattn.support.shapes import Float
from structattn.support.special_tokens import PAD
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch, Indices

BatchT = TypeVar("BatchT", bound=Batch | PairBatch)
BatchT_co = TypeVar("BatchT_co", bound=Batch | PairBatch, covariant=True)

LARGEST_EXPONENT = 709.0  # exp of more overflows a float64


@dataclass(frozen=True)
class Scores:
    """Scores of a model on a set of sequences; cross-entropies are in nats per token, ``<eos>`` included.

    Args:
        num_sequences: the number of sequences (or stream windows) scored.
        cross_entropy: -log p(set) / num_tokens.
        perplexity: exp(cross_entropy).
        lower_bound: the cross-entropy of the distribution that the set was drawn from, if known.
        accuracy: the fraction of correct answer tokens, averaged over lengths, for transductions; of correct labels,
            for recognition.
        bleu: BLEU of greedy translations, 0 to 100; translation with ``select_by: bleu`` only.
        tree_regularization: the mean of this loss over sentences, without its weight, where a run has it.
    """

    num_sequences: int
    num_tokens: int
    cross_entropy: float
    perplexity: float
    lower_bound: float | None = None
    accuracy: float | None = None
    bleu: float | None = None
    tree_regularization: float | None = None

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

        The loss of an update is Σ loss_sum / Σ loss_denominator over its batches, 0 where none predicts a token.
        """

    def num_tokens(self, batch: BatchT) -> int:
        """Return the number of tokens that the batch predicts."""

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split; ``after_batch`` is called after each batch and may raise to abort."""


AnyTask: TypeAlias = Task[Any]
"""A task whose batch type only the task itself knows."""


def num_predicted(batch: Batch | PairBatch) -> int:
    """Return the number of tokens that a batch predicts."""
    return int((batch.targets != PAD).sum())


class TrainingExamples(Protocol[BatchT_co]):
    """The training examples of a task, by their numbers."""

    def training_order(self, epoch: int) -> list[Indices]:
        """Return the batches of an epoch, a pure function of (seed, epoch)."""

    def batch(self, indices: Indices) -> BatchT_co:
        """Return the examples with these numbers; targets are ``<pad>`` where nothing is predicted."""


@dataclass(frozen=True)
class ExampleTask(Generic[BatchT]):
    """Learn from a set of examples. See ``Task``.

    Args:
        train: the training examples.
        validation: model, ``after_batch`` -> scores of the validation split.
        loss: the denominator of an update's loss: its sequences, as in DuSell & Chiang (2024), or the tokens that it
            predicts.
        criterion: model, batch -> the sum of its losses.
        further: an interval, and the criterion of updates whose number it divides; None: all have the same.
        count: batch -> the number of tokens that it predicts.
    """

    train: TrainingExamples[BatchT]
    validation: Callable[[torch.nn.Module, Callable[[], None]], Scores]
    loss: Literal["sequence_sum", "token_mean"]
    criterion: Callable[[torch.nn.Module, BatchT], Float[Tensor, ""]]
    further: tuple[int, Callable[[torch.nn.Module, BatchT], Float[Tensor, ""]]] | None = None
    count: Callable[[BatchT], int] = num_predicted

    def of_update(self, number: int) -> "ExampleTask[BatchT]":
        """Return the task of an update, the first of which has the number 1."""
        if self.further is None or number % self.further[0]:
            return self
        return replace(self, criterion=self.further[1])

    def training_batches(self, epoch: int) -> list[Indices]:
        """Return the batches of an epoch."""
        return self.train.training_order(epoch)

    def batch(self, indices: Indices) -> BatchT:
        """Return the training examples with these numbers."""
        return self.train.batch(indices)

    def loss_sum(self, model: torch.nn.Module, batch: BatchT) -> Float[Tensor, ""]:
        """Return the criterion of a batch."""
        return self.criterion(model, batch)

    def loss_denominator(self, batch: BatchT) -> int:
        """Return the number of sequences or of predicted tokens; a batch with masks may predict none."""
        return self.num_tokens(batch) if self.loss == "token_mean" else len(batch.lengths)

    def num_tokens(self, batch: BatchT) -> int:
        """Return the number of predicted tokens."""
        return self.count(batch)

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split."""
        return self.validation(model, after_batch)


SequenceTask: TypeAlias = ExampleTask[Batch]
"""Predict all or some of the tokens of sequences."""
