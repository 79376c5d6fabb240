"""Agreement of receptive fields with the true dependencies of the stack language (Discrete Transformer, 7.1)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from structattn.models.mode import evaluating
from structattn.models.protocols import AttendingModel
from structattn.operators import receptive_field
from structattn.support.devices import device_of
from structattn.support.progress import progress
from structattn.support.shapes import Float
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.formal_languages.stack_language import MAX_DEPTH, StackLanguage, dependencies
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.scores import DependencyScores
from structattn.text.batching.sequences import make_batch
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences

Matrix = Float[np.ndarray, "prediction input"]
_BATCH_SIZE = 100


def has_dependencies(prepared: PreparedFolder) -> bool:
    """Return whether the data are of the stack language, whose dependencies are known."""
    return prepared.header.extra.get("language") == StackLanguage.name


def true_dependencies(string: np.ndarray) -> Matrix:
    """Return the (T, T) matrix of which inputs <bos>, w_1..w_{T-1} the prediction of each of w_1..w_T depends on."""
    time = len(string)
    truth = np.zeros((time, time))
    if not time:
        return truth
    truth[1:, 1:] = dependencies(string)[: time - 1, : time - 1]
    digit_seen = np.concatenate([[False], np.cumsum(string[: time - 1] <= MAX_DEPTH) > 0])
    truth[:, 0] = ~digit_seen
    return truth


def receptive_fields(model: torch.nn.Module, tokens: Tensor, lengths: Tensor | None = None) -> Tensor | None:
    """Return the receptive field of every position, (B, T, T); None if a layer has no attention weights."""
    if not isinstance(model, AttendingModel):
        return None
    with evaluating(model), torch.no_grad():
        weights = model.attend(tokens, lengths)[1]
        known = [of_layer for of_layer in weights if of_layer is not None]
        return receptive_field(known, lengths=lengths) if len(known) == len(weights) else None


def dependency_scores(run: LoadedRun, split: str) -> DependencyScores | None:
    """Return the scores of a run on a split of the stack language.

    None if a layer has no attention weights, or no string has a symbol that depends on another one.
    """
    sequences = run.prepared.split(split)
    tallies: list[np.ndarray] = []
    with progress(f"Comparing dependencies of {split}", len(sequences), "strings") as advance:
        for first in range(0, len(sequences), _BATCH_SIZE):
            chosen = range(first, min(first + _BATCH_SIZE, len(sequences)))
            of_chunk = _tallies(run, sequences, chosen)
            if of_chunk is None:
                return None
            tallies += of_chunk
            advance(len(chosen))
    rows = np.concatenate(tallies)
    both, field, truth, symbols_both, symbols_field, symbols_truth = rows.sum(0)
    if not symbols_truth:
        return None
    return DependencyScores(
        predictions=len(rows),
        precision=float(both / field),
        recall=float(both / truth),
        precision_of_symbols=float(symbols_both / symbols_field) if symbols_field else 0.0,
        recall_of_symbols=float(symbols_both / symbols_truth),
        mean_precision=float((rows[:, 0] / rows[:, 1]).mean()),
        mean_recall=float((rows[:, 0] / rows[:, 2]).mean()),
        mean_field_size=float(field / len(rows)),
    )


def _tallies(run: LoadedRun, sequences: Sequences, chosen: Sequence[int]) -> list[np.ndarray] | None:
    """For each string, the sums that the scores are computed from, one row per prediction."""
    batch = make_batch(sequences, chosen)
    device = device_of(run.model)
    fields = receptive_fields(run.model, batch.inputs.to(device), batch.lengths.to(device))
    if fields is None:
        return None
    strings = [np.asarray(sequences[index]) - FIRST_SYMBOL for index in chosen]
    return [
        _rows(field[: len(string), : len(string)], string)
        for field, string in zip(fields.cpu().double().numpy(), strings, strict=True)
    ]


def _rows(field: Matrix, string: np.ndarray) -> np.ndarray:
    """Σ s d, Σ s, Σ d over all inputs, then the same without ``<bos>``, (T, 6)."""
    truth = true_dependencies(string)
    sums = [x[:, start:].sum(1) for start in (0, 1) for x in (field * truth, field, truth)]
    return np.stack(sums, axis=1)
