"""Tree regularization of language models: a loss of the hidden states of sentences with trees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structattn.operators import tree_regularization
from structattn.settings.run import RunSettings
from structattn.settings.training import TreeRegularization
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.shapes import Bool, Float, Int32, Int64
from structattn.tasks.language_modeling.batches import split_examples, text_batches
from structattn.tasks.language_modeling.evaluate import score_batches
from structattn.tasks.losses import CROSS_ENTROPY, Criterion
from structattn.tasks.task import Scores, SequenceTask
from structattn.text.batching.sequences import Batch
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences


@dataclass(frozen=True)
class SentenceTrees:
    """The binary trees of the sentences of a split.

    Args:
        sequences: the sentences.
        ranks: of the split after each token; see ``write_tokenized``.
    """

    sequences: Sequences
    ranks: Int32[np.ndarray, " tokens"]

    @classmethod
    def of(cls, prepared: PreparedFolder, split: str) -> "SentenceTrees":
        """Return those of a prepared folder.

        Raises:
            DataError: it has no trees.
        """
        return cls(prepared.split(split), prepared.trees(split))

    def __call__(self, sentences: Sequence[int]) -> tuple[Int64[Tensor, "splits 4"], Bool[Tensor, "batch time"]]:
        """Return the splits of some sentences and where words begin, as ``tree_regularization`` takes them."""
        offsets = self.sequences.offsets
        rows = [self.ranks[offsets[index] : offsets[index + 1]].tolist() for index in sentences]
        splits = [(row, *split) for row, ranks in enumerate(rows) for split in _splits(ranks)]
        starts = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.bool)
        for row, ranks in enumerate(rows):
            starts[row, : len(ranks)] = torch.tensor([True, *(rank > 0 for rank in ranks[:-1])][: len(ranks)])
        return torch.tensor(splits, dtype=torch.int64).view(-1, 4), starts


def _splits(ranks: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return first position, k and last position of each split: its span ends at the next splits of lower ranks."""
    spans: list[list[int]] = []
    open_spans: list[list[int]] = []  # of rising ranks, which later ones may still be inside of
    for k, rank in enumerate(ranks[:-1]):
        if rank <= 0:
            continue
        while open_spans and ranks[open_spans[-1][1]] > rank:
            open_spans.pop()[2] = k
        spans.append([open_spans[-1][1] + 1 if open_spans else 0, k, len(ranks) - 1])
        open_spans.append(spans[-1])
    return [(first, k, last) for first, k, last in spans]


@dataclass(frozen=True)
class TreeLoss:
    """The loss of ``tree_regularization`` for sentences of a split.

    Args:
        layer: the number of the layer, from 0.
        heads: whether states are outputs of heads; else they are the output of the layer.
        size: the number of first numbers of a state that are regularized.
    """

    trees: SentenceTrees
    layer: int
    heads: bool
    size: int

    @classmethod
    def of(cls, settings: TreeRegularization, model: LanguageModelSettings, trees: SentenceTrees) -> "TreeLoss":
        """Return the loss that settings describe."""
        return cls(trees, settings.chosen_layer(model), settings.part == "heads", settings.size(model))

    def with_loss(self, model: Any, batch: Batch, call: Callable[[], Tensor]) -> tuple[Tensor, Float[Tensor, ""]]:
        """Return the result of a function that calls a model once on a batch, and the mean loss of its sentences."""
        block = model.layers.blocks[self.layer]
        states: list[Tensor] = []
        if self.heads:
            projection = block.attention.layer.output  # of the concatenated heads
            hook = projection.register_forward_pre_hook(lambda _, x: states.append(x[0]))
        else:
            hook = block.register_forward_hook(lambda _, __, y: states.append(y))
        try:
            result = call()
        finally:
            hook.remove()
        (of_tokens,) = states
        splits, starts = self.trees(batch.examples)
        device = of_tokens.device
        mean = tree_regularization(
            of_tokens[:, 1:, : self.size],
            splits.to(device),
            word_starts=starts.to(device),
            lengths=(batch.lengths - 1).to(device),
        )
        return result, mean


@dataclass(frozen=True)
class TreeCriterion:
    """The loss of language modeling and, beside it, w times the mean of tree regularization over sentences.

    The mean is that of a batch. Where an update has several, each mean counts as much as the batch's share of the
    denominator: that of its sentences, or with ``loss: token_mean`` of its tokens.

    Args:
        weight: w.
        denominator: of the loss of a batch, by which both are divided.
    """

    criterion: Criterion
    trees: TreeLoss
    weight: float
    denominator: Callable[[Batch], int]

    def __call__(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch."""
        total, mean = self.trees.with_loss(model, batch, lambda: self.criterion(model, batch))
        return total + self.weight * self.denominator(batch) * mean


def with_tree_regularization(task: SequenceTask, prepared: PreparedFolder, settings: RunSettings) -> SequenceTask:
    """Return a task of language modeling with the loss of its settings, which validation reports without its weight.

    Raises:
        DataError: the folder has no trees.
    """
    training = settings.training
    chosen = training.tree_regularization
    examples = split_examples(prepared, "valid", text_batches(prepared, training.batches))
    assert chosen is not None
    assert isinstance(settings.model, LanguageModelSettings)  # the settings refuse other models
    train, valid = (
        TreeLoss.of(chosen, settings.model, SentenceTrees.of(prepared, split)) for split in ("train", "valid")
    )

    def validate(model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        sums: list[float] = []

        def loss_sum(model: torch.nn.Module, batch: Batch) -> Tensor:
            total, mean = valid.with_loss(model, batch, lambda: CROSS_ENTROPY(model, batch))
            sums.append(mean.item() * len(batch.lengths))
            return total

        batches = (examples.batch(indices) for indices in examples.scoring_order())
        scores = score_batches(model, batches, after_batch, loss_sum)
        return replace(scores, tree_regularization=sum(sums) / scores.num_sequences)

    criterion = TreeCriterion(Criterion.from_settings(training), train, chosen.weight, task.loss_denominator)
    return replace(task, validation=validate, further=(chosen.every, criterion))
