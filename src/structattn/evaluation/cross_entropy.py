"""How many nats a model needs for each sequence of a split; sums in float64, so the batch size cannot change them."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64
from torch.nn import functional as F

from structattn.data.batching.sequences import (
    Batch,
    Indices,
    make_batch,
    make_stream_batch,
    stream_batches,
    token_batches,
)
from structattn.data.folders.prepared import Sequences
from structattn.support.progress import progress
from structattn.support.special_tokens import PADDING_CLASS, class_of
from structattn.tasks.sequence_loss import padded_lengths

Nats = Float64[np.ndarray, " examples"]


def nats_of_rows(model: torch.nn.Module, batch: Batch) -> Nats:
    """-log p of every row of a batch, ``<eos>`` included: the terms in float32 or better, their sum in float64."""
    device = next(model.parameters()).device
    lengths = padded_lengths(batch)
    with torch.no_grad():
        logits = model(batch.inputs.to(device), lengths=None if lengths is None else lengths.to(device))
        classes = class_of(batch.targets).to(device)
        terms = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), ignore_index=PADDING_CLASS, reduction="none")
    return np.asarray(terms.view_as(classes).double().sum(dim=1).cpu().numpy(), dtype=np.float64)


def _nats_of_plan(model: torch.nn.Module, plan: Sequence[Indices], make: Callable[[Indices], Batch], what: str) -> Nats:
    nats = np.full(sum(len(indices) for indices in plan), np.nan)
    was_training = model.training
    model.eval()
    try:
        with progress(f"Scoring {what}", len(plan), "batches") as advance:
            for indices in plan:
                nats[indices] = nats_of_rows(model, make(indices))
                advance()
    finally:
        model.train(was_training)
    return nats


def sequence_nats(model: torch.nn.Module, sequences: Sequences, batch_tokens: int, what: str) -> Nats:
    """-log p(w <eos>) of every sequence w, in file order.

    Args:
        model: ``model(tokens, lengths) -> logits``; dropout is off for the time of the call.
        sequences: what to score.
        batch_tokens: the largest padded size of a batch; decides speed and memory only.
        what: for the progress bar.
    """
    plan = token_batches(sequences.lengths, batch_tokens, seed=0, epoch=None)
    return _nats_of_plan(model, plan, partial(make_batch, sequences), what)


def stream_nats(model: torch.nn.Module, sequences: Sequences, length: int, batch_tokens: int, what: str) -> Nats:
    """-log p of every window of ``length`` symbols of a stream; no window sees what stands before it.

    Every symbol is predicted exactly once, the ``<eos>`` that ends each line included.
    """
    plan = stream_batches(sequences.target_count, length, max(1, batch_tokens // length), seed=0, epoch=None)
    return _nats_of_plan(model, plan, partial(make_stream_batch, sequences, length=length), what)
