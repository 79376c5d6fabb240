"""Negative log-likelihood of sequences, summed in float64 so that the batch size does not matter."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from structattn.models.mode import evaluating
from structattn.support.progress import progress
from structattn.support.special_tokens import BOS
from structattn.tasks.losses import model_inputs, token_losses
from structattn.text.batching.sequences import (
    Batch,
    Indices,
    make_batch,
    make_stream_batch,
    stream_batches,
    token_batches,
)
from structattn.text.folders.sequences import Sequences

NegativeLogLikelihoods = Float64[np.ndarray, " examples"]


def batch_negative_log_likelihoods(model: torch.nn.Module, batch: Batch) -> NegativeLogLikelihoods:
    """Return -log p of every row of a batch, ``<eos>`` included, with terms in float32 or better summed in float64."""
    return np.asarray(_batch_token_losses(model, batch).sum(dim=1).numpy(), dtype=np.float64)


@torch.no_grad()
def _batch_token_losses(model: torch.nn.Module, batch: Batch) -> Float64[Tensor, "batch time"]:
    """Return -log p of every token of a batch on the CPU; 0 at padding."""
    inputs, lengths, classes = model_inputs(model, batch)
    return token_losses(model(inputs, lengths=lengths), classes).double().cpu()


def line_token_losses(
    model: torch.nn.Module, lines: Sequence[Sequence[int]], batch_tokens: int, what: str, start: int = BOS
) -> list[Float64[np.ndarray, " tokens"]]:
    """Return -log p of each token of each line, and of the ``<eos>`` after it, given the tokens before it.

    Args:
        model: ``model(tokens, lengths) -> logits``; it is put into evaluation mode for the call.
        lines: ids without ``<bos>`` and ``<eos>``.
        batch_tokens: the maximal padded size of a batch; affects speed and memory only.
        what: a name for the progress bar.
        start: the id before the first token.
    """
    rows = [np.asarray(line, dtype=np.int64) for line in lines]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    found: list[Float64[np.ndarray, " tokens"]] = [np.empty(0)] * len(rows)
    plan = token_batches(lengths, batch_tokens, seed=0, epoch=None)
    with evaluating(model), progress(f"Scoring {what}", len(rows), "lines") as advance:
        for indices in plan:
            losses = _batch_token_losses(model, make_batch(rows, indices, start)).numpy()
            for index, of_line in zip(indices.tolist(), losses, strict=True):
                found[index] = of_line[: lengths[index] + 1]
            advance(len(indices))
    return found


def _score_batches(
    model: torch.nn.Module, plan: Sequence[Indices], make: Callable[[Indices], Batch], what: str
) -> NegativeLogLikelihoods:
    losses = np.full(sum(len(indices) for indices in plan), np.nan)
    with evaluating(model), progress(f"Scoring {what}", len(plan), "batches") as advance:
        for indices in plan:
            losses[indices] = batch_negative_log_likelihoods(model, make(indices))
            advance()
    return losses


def sequence_negative_log_likelihoods(
    model: torch.nn.Module, sequences: Sequences, batch_tokens: int, what: str
) -> NegativeLogLikelihoods:
    """Return -log p(w <eos>) of every sequence w, in file order.

    Args:
        model: ``model(tokens, lengths) -> logits``; it is put into evaluation mode for the call.
        sequences: the sequences to score.
        batch_tokens: the maximal padded size of a batch; affects speed and memory only.
        what: a name for the progress bar.
    """
    plan = token_batches(sequences.lengths, batch_tokens, seed=0, epoch=None)
    return _score_batches(model, plan, partial(make_batch, sequences), what)


def window_negative_log_likelihoods(
    model: torch.nn.Module, sequences: Sequences, length: int, batch_tokens: int, what: str
) -> NegativeLogLikelihoods:
    """Return -log p of every window of ``length`` tokens of a stream, each without the context before it.

    Every token is predicted exactly once, including the ``<eos>`` at the end of each line.
    """
    plan = stream_batches(sequences.num_targets, length, max(1, batch_tokens // length), seed=0, epoch=None)
    return _score_batches(model, plan, partial(make_stream_batch, sequences, length=length), what)
