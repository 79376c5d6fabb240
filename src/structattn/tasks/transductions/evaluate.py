"""Scores of transductions by length: cross-entropy, accuracy, and their table."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention.positions import SinusoidalPositions
from structattn.models.mode import evaluating, evaluating_with_dropout
from structattn.models.protocols import CausalModel
from structattn.support.devices import device_of
from structattn.support.progress import progress
from structattn.support.seeds import derived_seed
from structattn.support.shapes import Int
from structattn.support.special_tokens import CLASS_OFFSET, class_of, id_of
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.losses import cross_entropy_sum
from structattn.tasks.scores import LengthScore, SplitScores
from structattn.tasks.task import Scores, perplexity
from structattn.tasks.transductions.batches import (
    Form,
    Ids,
    TransductionData,
    batch_of,
    form_of,
    stored_pairs,
    transduction_data,
)
from structattn.tasks.transductions.transduction import Transduction
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.tokenization.vocabulary import Vocabulary


def fraction_correct(num_correct: int, num_scored: int) -> float:
    """Return num_correct / num_scored, and 1 for 0 / 0."""
    return num_correct / num_scored if num_scored else 1.0


@dataclass(frozen=True)
class LengthCounts:
    """Loss and correct predictions on pairs of one length of x.

    Args:
        length: the length of x.
        num_pairs: the number of pairs.
        num_tokens: the number of tokens of y, padding included.
        loss_sum: -log p(y | x) summed over the pairs.
        num_scored: the number of tokens that count for accuracy.
        num_correct: the number of those that have the highest probability given x and, in the autoregressive form, the
            preceding tokens of y.
    """

    length: int
    num_pairs: int
    num_tokens: int
    loss_sum: float
    num_scored: int
    num_correct: int

    @property
    def accuracy(self) -> float:
        """The fraction of scored tokens that is correct; 1 if none is scored."""
        return fraction_correct(self.num_correct, self.num_scored)


def split_counts(
    model: nn.Module,
    data: TransductionData,
    prepared: PreparedFolder,
    split: str,
    form: Form,
    after_batch: Callable[[], None] = lambda: None,
) -> list[LengthCounts]:
    """Score a model on each length of a split, in evaluation mode."""
    counts = []
    with evaluating(model):
        for _, x, y in stored_pairs(prepared, split):
            counts.append(length_counts(model, data.task, data.vocabulary, x, y, form))
            after_batch()
    return counts


def scores_from_counts(counts: list[LengthCounts]) -> Scores:
    """Return the cross-entropy over all tokens, and the accuracy averaged over lengths as in the papers."""
    num_tokens = sum(each.num_tokens for each in counts)
    cross_entropy = sum(each.loss_sum for each in counts) / num_tokens
    return Scores(
        num_sequences=sum(each.num_pairs for each in counts),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        accuracy=fmean(each.accuracy for each in counts),
    )


@torch.no_grad()
def length_counts(
    model: nn.Module, task: Transduction, vocabulary: Vocabulary, x: Ids, y: Ids, form: Form
) -> LengthCounts:
    """Score pairs of one length; the mode of the model is left as it is."""
    batch = batch_of(x, y, vocabulary, form)
    device = device_of(model)
    logits = model(batch.inputs.to(device))[:, -y.shape[1] :]
    classes = torch.from_numpy(class_of(y)).to(device)
    scored = torch.from_numpy(scored_positions(task, vocabulary, y)).to(device)
    correct = (logits.argmax(-1) == classes) & scored
    loss_sum = cross_entropy_sum(logits, classes).item()
    return LengthCounts(x.shape[1], len(x), y.size, loss_sum, int(scored.sum()), int(correct.sum()))


def scored_positions(task: Transduction, vocabulary: Vocabulary, y: Ids) -> np.ndarray:
    """Return which tokens of y, given as ids, count for accuracy."""
    index = {vocabulary.id_of[symbol]: place for place, symbol in enumerate(task.outputs)}
    return task.counted(np.vectorize(index.__getitem__, otypes=[np.int64])(y))


@torch.no_grad()
def num_correct_greedy(model: nn.Module, task: Transduction, vocabulary: Vocabulary, x: Ids, y: Ids) -> int:
    """Return the number of scored tokens that greedy decoding, fed with its own outputs, predicts correctly.

    This is how the code behind the published autoregressive numbers scores (Li et al. 2024). Cost: see
    ``greedy_outputs``.
    """
    outputs = greedy_outputs(model, vocabulary, x, y.shape[1])
    return int(((outputs == y) & scored_positions(task, vocabulary, y)).sum())


@torch.no_grad()
def greedy_outputs(model: nn.Module, vocabulary: Vocabulary, x: Ids, count: int) -> Ids:
    """Return ``count`` output tokens for each x, each the most probable one given those before it.

    Cost: ``count`` steps, or as many forward passes over the whole sequence for a model without incremental decoding.
    """
    device = device_of(model)
    first = np.zeros((len(x), 1), dtype=np.int64)  # of y, and not an input
    prompt = batch_of(x, first, vocabulary, "autoregressive").inputs.to(device)
    by_steps = isinstance(model, CausalModel) and not _counts_backwards(model)
    outputs = (_greedy_by_steps if by_steps else _greedy_by_forward)(model, prompt, count)  # type: ignore[arg-type]  # checked
    return np.asarray(outputs.cpu().numpy(), dtype=np.int64)


def _counts_backwards(model: nn.Module) -> bool:
    """Return whether positions are counted from the end of the sequence, which incremental decoding cannot know."""
    return any(isinstance(module, SinusoidalPositions) and module.direction == "backward" for module in model.modules())


def _greedy_by_steps(model: CausalModel, prompt: Int[Tensor, "pairs prompt"], count: int) -> Int[Tensor, "pairs count"]:
    state = model.initial_state(len(prompt))
    for tokens in prompt.unbind(1):
        logits, state = model.step(tokens, state)
    outputs = [id_of(logits.argmax(-1))]
    for _ in range(count - 1):
        logits, state = model.step(outputs[-1], state)
        outputs.append(id_of(logits.argmax(-1)))
    return torch.stack(outputs, dim=1)


def _greedy_by_forward(model: nn.Module, prompt: Int[Tensor, "pairs prompt"], count: int) -> Int[Tensor, "pairs count"]:
    """Decode with a whole forward pass per token; causality makes the tokens at later positions irrelevant."""
    length = prompt.shape[1]
    tokens = F.pad(prompt, (0, count), value=CLASS_OFFSET)
    for position in range(length, length + count):
        tokens[:, position] = id_of(model(tokens[:, :-1])[:, position - 1].argmax(-1))
    return tokens[:, length:]


def transduction_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run of a transduction task on a split, with active dropout if its evaluation settings say so."""
    form, data = form_of(run.settings), transduction_data(run.prepared, run.settings.seed)
    pairs = list(stored_pairs(run.prepared, split))
    with _mode(run, split), progress(f"Scoring {split}", len(pairs), "lengths") as advance:
        results = []
        for _, x, y in pairs:
            results.append(_length_score(run.accelerated, data, x, y, form, batch_tokens))
            advance()
    by_length = [score for score, _ in results]
    num_tokens = sum(count for _, count in results)
    cross_entropy = sum(score.cross_entropy * count for score, count in results) / num_tokens
    greedy = [score.accuracy_greedy for score in by_length if score.accuracy_greedy is not None]
    return SplitScores(
        split=split,
        num_sequences=sum(score.num_sequences for score in by_length),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        by_length=tuple(by_length),
        accuracy=fmean(score.accuracy for score in by_length if score.accuracy is not None),
        accuracy_greedy=fmean(greedy) if greedy else None,
    )


def _mode(run: LoadedRun, split: str) -> AbstractContextManager[Any]:
    if not run.settings.evaluation.dropout:
        return evaluating(run.model)
    return evaluating_with_dropout(run.model, derived_seed(run.settings.seed, "dropout in evaluation", split))


def _length_score(
    model: nn.Module, data: TransductionData, x: Ids, y: Ids, form: Form, batch_tokens: int
) -> tuple[LengthScore, int]:
    """Return the score of the pairs of one length, and their number of output symbols."""
    rows = max(1, batch_tokens // (2 + x.shape[1] + y.shape[1]))
    pieces = [(x[i : i + rows], y[i : i + rows]) for i in range(0, len(x), rows)]
    counts = [length_counts(model, data.task, data.vocabulary, *piece, form) for piece in pieces]
    num_scored = sum(each.num_scored for each in counts)
    greedy = None
    if form == "autoregressive":
        num_correct = sum(num_correct_greedy(model, data.task, data.vocabulary, *piece) for piece in pieces)
        greedy = fraction_correct(num_correct, num_scored)
    score = LengthScore(
        length=x.shape[1],
        num_sequences=len(x),
        cross_entropy=sum(each.loss_sum for each in counts) / y.size,
        accuracy=fraction_correct(sum(each.num_correct for each in counts), num_scored),
        accuracy_greedy=greedy,
    )
    return score, y.size
