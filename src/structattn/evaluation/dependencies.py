"""How well receptive fields agree with what symbols of the stack language depend on (Discrete Transformer, 7.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from structattn.data.batching.sequences import make_batch
from structattn.data.folders.prepared import PreparedFolder, Sequences
from structattn.data.formal_languages.stack_language import DEEPEST, StackLanguage, dependencies
from structattn.inference.runs import TrainedRun
from structattn.operators import receptive_field
from structattn.support.progress import progress
from structattn.support.special_tokens import FIRST_SYMBOL

Matrix = Float[np.ndarray, "prediction input"]


@dataclass(frozen=True)
class DependencyScores:
    """Precision Σ s d / Σ s and recall Σ s d / Σ d of receptive fields s against the true dependencies d.

    Predictions are those of the symbols, not of the end. With choices s is 0 or 1; with weights it lies between, by the
    relaxed recursion. The input <bos> is level 0 where no digit has come yet, and depends on nothing elsewhere.

    Args:
        predictions: how many there are.
        precision: over all predictions.
        recall: over all predictions.
        precision_of_symbols: the same without <bos> as an input, and without the first prediction.
        recall_of_symbols: likewise.
        mean_precision: the mean of the predictions' own.
        mean_recall: the mean of the predictions' own.
        inputs: the mean size of a receptive field.
    """

    predictions: int
    precision: float
    recall: float
    precision_of_symbols: float
    recall_of_symbols: float
    mean_precision: float
    mean_recall: float
    inputs: float


def has_dependencies(prepared: PreparedFolder) -> bool:
    """Whether the data are of the one language whose dependencies are known."""
    return prepared.header.extra.get("language") == StackLanguage.name


def true_dependencies(string: np.ndarray) -> Matrix:
    """Which inputs <bos>, w_1..T-1 the prediction of each of w_1..T needs, (T, T), for a string of symbol indices."""
    time = len(string)
    truth = np.zeros((time, time))
    truth[1:, 1:] = dependencies(string)[: time - 1, : time - 1]
    digit_seen = np.concatenate([[False], np.cumsum(string[: time - 1] <= DEEPEST) > 0])
    truth[:, 0] = ~digit_seen
    return truth


def fields_of(model: torch.nn.Module, tokens: Tensor, lengths: Tensor | None = None) -> Tensor | None:
    """The receptive field of every position, (B, T, T); None where a layer hands out no weights."""
    attend: Any = getattr(model, "attend", None)
    if attend is None:
        return None
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            weights = attend(tokens, lengths)[1]
            return None if any(of_layer is None for of_layer in weights) else receptive_field(weights, lengths=lengths)
    finally:
        model.train(was_training)


def dependency_scores(run: TrainedRun, split: str, batch_size: int = 100) -> DependencyScores | None:
    """The scores of a run on a split of the stack language; None where its layers hand out no weights."""
    sequences = run.prepared.split(split)
    tallies: list[np.ndarray] = []
    with progress(f"Comparing dependencies of {split}", len(sequences), "strings") as advance:
        for first in range(0, len(sequences), batch_size):
            chosen = range(first, min(first + batch_size, len(sequences)))
            found = _tallies(run, sequences, chosen)
            if found is None:
                return None
            tallies += found
            advance(len(chosen))
    return _scores(np.concatenate(tallies))


def _tallies(run: TrainedRun, sequences: Sequences, chosen: Sequence[int]) -> list[np.ndarray] | None:
    """For each string, the rows of sums that the scores are made of, one for each prediction."""
    batch = make_batch(sequences, chosen)
    device = next(run.model.parameters()).device
    fields = fields_of(run.model, batch.inputs.to(device), batch.lengths.to(device))
    if fields is None:
        return None
    strings = [np.asarray(sequences[index]) - FIRST_SYMBOL for index in chosen]
    return [
        _rows(field[: len(string), : len(string)], string)
        for field, string in zip(fields.cpu().double().numpy(), strings, strict=True)
    ]


def _rows(field: Matrix, string: np.ndarray) -> np.ndarray:
    """Σ s d, Σ s, Σ d over all inputs, then over the symbols, (T, 6)."""
    truth = true_dependencies(string)
    sums = [(x[:, start:].sum(1)) for start in (0, 1) for x in (field * truth, field, truth)]
    return np.stack(sums, axis=1)


def _scores(rows: np.ndarray) -> DependencyScores:
    both, field, truth, symbols_both, symbols_field, symbols_truth = rows.sum(0)
    return DependencyScores(
        predictions=len(rows),
        precision=float(both / field),
        recall=float(both / truth),
        precision_of_symbols=float(symbols_both / symbols_field),
        recall_of_symbols=float(symbols_both / symbols_truth),
        mean_precision=float((rows[:, 0] / rows[:, 1]).mean()),
        mean_recall=float((rows[:, 0] / rows[:, 2]).mean()),
        inputs=float(field / len(rows)),
    )
