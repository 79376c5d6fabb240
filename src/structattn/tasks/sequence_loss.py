"""The loss of all tasks that predict the next token: cross-entropy in nats."""

from typing import Literal

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from structattn.data.batching.sequences import Batch
from structattn.support.special_tokens import PADDING_CLASS, class_of


def padded_lengths(batch: Batch) -> Int64[Tensor, " batch"] | None:
    """The lengths, or None where no row is padded, which lets models skip their masks."""
    return None if batch.lengths.numel() and int(batch.lengths.min()) == batch.inputs.shape[1] else batch.lengths


def model_inputs(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
    """Inputs, lengths where a row is padded, and classes of a batch, where the model is."""
    device = next(model.parameters()).device
    lengths = padded_lengths(batch)  # looked at before the move, so that no device is waited for
    lengths = None if lengths is None else lengths.to(device)
    return batch.inputs.to(device), lengths, class_of(batch.targets).to(device)


def cross_entropy_sum(
    logits: Float[Tensor, "batch time classes"], classes: Int[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """-Σ log softmax(logits)[class] over all positions that are not padding."""
    return F.cross_entropy(logits.flatten(0, 1), classes.flatten(), ignore_index=PADDING_CLASS, reduction="sum")


def token_losses(
    logits: Float[Tensor, "batch time classes"], classes: Int[Tensor, "batch time"]
) -> Float[Tensor, "batch time"]:
    """-log softmax(logits)[class] of each position; 0 where there is padding."""
    flat = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), ignore_index=PADDING_CLASS, reduction="none")
    return flat.view(classes.shape)


def batch_cross_entropy(model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """-log p(batch) = -Σ log softmax(logits)[target], over all positions that are not padding.

    Args:
        model: ``model(tokens, lengths) -> logits`` (B, T, classes), class c standing for token id c + 2.
        batch: inputs begin with ``<bos>``, targets end with ``<eos>``.
    """
    inputs, lengths, classes = model_inputs(model, batch)
    return cross_entropy_sum(model(inputs, lengths=lengths), classes)


def num_target_tokens(batch: Batch) -> int:
    """The number of targets, ``<eos>`` counted and padding not."""
    return int(batch.lengths.sum())


def loss_denominator(loss: Literal["sequence_sum", "token_mean"], batch: Batch) -> int:
    """What a batch counts in the mean over an update.

    Args:
        loss: ``sequence_sum``, the sum over time and the mean over sequences, as DuSell & Chiang (2024)
            have it, or ``token_mean``.
        batch: the batch.
    """
    return num_target_tokens(batch) if loss == "token_mean" else len(batch.lengths)
