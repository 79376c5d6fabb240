"""Negative log-likelihood of each sequence of a split, summed in float64 so that the batch size does not matter."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64

from structattn.data.batching.sequences import (
    Batch,
    Indices,
    make_batch,
    make_stream_batch,
    stream_batches,
    token_batches,
)
from structattn.data.folders import Sequences
from structattn.models.mode import evaluating
from structattn.support.progress import progress
from structattn.tasks.losses import model_inputs, token_losses

NegativeLogLikelihoods = Float64[np.ndarray, " examples"]


def batch_negative_log_likelihoods(model: torch.nn.Module, batch: Batch) -> NegativeLogLikelihoods:
    """Return -log p of every row of a batch, ``<eos>`` included, with terms in float32 or better summed in float64."""
    with torch.no_grad():
        inputs, lengths, classes = model_inputs(model, batch)
        losses = token_losses(model(inputs, lengths=lengths), classes)
    return np.asarray(losses.double().sum(dim=1).cpu().numpy(), dtype=np.float64)


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
