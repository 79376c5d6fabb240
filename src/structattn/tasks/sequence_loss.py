"""The loss of all tasks that predict the next token: cross-entropy in nats."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from structattn.data.batching import Batch
from structattn.operators import receptive_field
from structattn.support.errors import SettingsError

FIRST_OUTPUT_ID = 2  # output class c stands for token id c + 2: <pad> and <bos> are never predicted
PADDING_CLASS = -FIRST_OUTPUT_ID  # what <pad>, id 0, becomes; the loss passes over it

EXPECTED = "expected layers of softmax or hard attention"


def known_lengths(batch: Batch) -> Int64[Tensor, " batch"] | None:
    """The lengths, or None where no row is padded, which lets models skip their masks."""
    return None if batch.lengths.numel() and int(batch.lengths.min()) == batch.inputs.shape[1] else batch.lengths


def summed_nats(model: torch.nn.Module, batch: Batch, receptive_field_weight: float = 0.0) -> Float[Tensor, ""]:
    """-log p(batch) = -Σ log softmax(logits)[target], over all positions that are not padding.

    With a weight λ, plus λ Σ_i Σ_j s_ij over the positions i: divided by the number of positions this is the mean of
    the nats plus λ R, the regulariser of the Discrete Transformer paper (section 5.1) in the form that is not constant.

    Args:
        model: ``model(tokens, lengths) -> logits`` (B, T, classes), class c standing for token id c + 2.
        batch: inputs begin with ``<bos>``, targets end with ``<eos>``.
        receptive_field_weight: λ.

    Raises:
        SettingsError: λ is not 0, and some layer hands out no weights.
    """
    device = next(model.parameters()).device
    lengths = known_lengths(batch)  # looked at before the move, so that no device is waited for
    lengths = None if lengths is None else lengths.to(device)
    inputs, classes = batch.inputs.to(device), (batch.targets - FIRST_OUTPUT_ID).to(device)
    if not receptive_field_weight:
        return _nats(model(inputs, lengths=lengths), classes)
    attend: Any = getattr(model, "attend", None)
    if attend is None:
        raise SettingsError(f"training.receptive_field_weight: this kind of model hands out no weights; {EXPECTED}")
    logits, weights = attend(inputs, lengths)
    field = receptive_field(_of_every_layer(weights), lengths=lengths)
    return _nats(logits, classes) + receptive_field_weight * field.sum()


def _nats(logits: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), classes.flatten(), ignore_index=PADDING_CLASS, reduction="sum")


def _of_every_layer(weights: Sequence[Tensor | None]) -> list[Tensor]:
    found = [of_layer for of_layer in weights if of_layer is not None]
    if len(found) < len(weights):
        missing = [of_layer is None for of_layer in weights].index(True)
        raise SettingsError(f"training.receptive_field_weight: layer {missing} hands out no weights; {EXPECTED}")
    return found


def symbol_count(batch: Batch) -> int:
    """The number of targets, ``<eos>`` counted and padding not."""
    return int(batch.lengths.sum())


def loss_divisor(loss: Literal["sequence_sum", "token_mean"], batch: Batch) -> int:
    """What a batch counts in the mean over an update.

    Args:
        loss: ``sequence_sum``, the sum over time and the mean over sequences, as DuSell & Chiang (2024)
            have it, or ``token_mean``.
        batch: the batch.
    """
    return symbol_count(batch) if loss == "token_mean" else len(batch.lengths)
