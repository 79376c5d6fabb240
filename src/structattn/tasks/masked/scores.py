"""Cross-entropy of masked tokens, and pseudo-log-likelihoods of texts."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from structattn.models.mode import evaluating
from structattn.settings.training import LabelSmoothing
from structattn.support.special_tokens import BOS, EOS, PADDING_CLASS, class_of
from structattn.tasks.losses import cross_entropy_sum, model_inputs, to_float32
from structattn.tasks.masked.corruption import Tokens
from structattn.tasks.task import Scores, perplexity
from structattn.text.batching.sequences import Batch


def masked_cross_entropy_sum(
    model: torch.nn.Module, batch: Batch, label_smoothing: LabelSmoothing | None = None
) -> Float[Tensor, ""]:
    """Return the sum of -log p of the predicted tokens of a batch; logits of other tokens are not computed."""
    inputs, lengths, classes = model_inputs(model, batch)
    predicted = classes != PADDING_CLASS
    logits = model(inputs, lengths=lengths, predicted=predicted)
    return cross_entropy_sum(logits[None], classes[predicted][None], label_smoothing)


def score_masked(model: torch.nn.Module, batches: Iterable[Batch], after_batch: Callable[[], None]) -> Scores:
    """Score a model on corrupted batches in evaluation mode; sums over batches are kept in float64.

    Args:
        model: ``model(tokens, lengths, predicted) -> logits`` (N, classes) of the N predicted positions.
        batches: what to score.
        after_batch: called after each batch; may raise to abort.
    """
    num_sequences, num_tokens, loss_sum = 0, 0, 0.0
    with evaluating(model):
        for batch in batches:
            with torch.no_grad():
                loss_sum += masked_cross_entropy_sum(model, batch).item()
            num_sequences += len(batch.lengths)
            num_tokens += num_predicted(batch)
            after_batch()
    cross_entropy = loss_sum / num_tokens if num_tokens else 0.0  # an empty sum
    return Scores(num_sequences, num_tokens, cross_entropy, perplexity(cross_entropy))


def num_predicted(batch: Batch) -> int:
    """Return the number of tokens that a batch predicts."""
    return int((batch.targets > 0).sum())


@torch.no_grad()
def pseudo_log_likelihoods(
    model: torch.nn.Module, tokens: Tokens, mask: int, bos: bool, rows: int
) -> Float64[np.ndarray, " predicted"]:
    """Return log p(w_t | all other tokens) of each token but ``<eos>``; their sum is that of Salazar et al. (2020).

    Args:
        model: as for ``score_masked``, in evaluation mode.
        tokens: ids of one text, without ``<bos>``.
        mask: the id of the mask, which replaces each token in turn.
        bos: whether the inputs of the model begin with ``<bos>``.
        rows: the number of tokens that are masked in one pass, each in a copy of the text.

    Cost: as many forward passes of the text as it has tokens.
    """
    places = np.flatnonzero(tokens != EOS)
    parts = [places[start : start + rows] for start in range(0, len(places), rows)]
    return np.concatenate([np.empty(0), *(_log_likelihoods(model, tokens, part, mask, bos) for part in parts)])


def _log_likelihoods(
    model: torch.nn.Module, tokens: Tokens, places: np.ndarray, mask: int, bos: bool
) -> Float64[np.ndarray, " places"]:
    device = next(model.parameters()).device
    inputs = torch.tensor([BOS] * bos + tokens.tolist()).repeat(len(places), 1)
    columns = torch.from_numpy(places) + bos
    predicted = torch.arange(inputs.shape[1]) == columns[:, None]
    logits = model(inputs.masked_fill(predicted, mask).to(device), predicted=predicted.to(device))
    classes = torch.from_numpy(class_of(tokens[places])).to(device)
    found = to_float32(logits).log_softmax(-1).gather(1, classes[:, None])
    return np.asarray(found[:, 0].double().cpu().numpy(), dtype=np.float64)
