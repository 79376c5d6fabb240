"""The task of translating: predict each target token from the source and from what stands before it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.data.batching.pairs import PairBatch
from structattn.data.batching.sequences import Indices
from structattn.data.folders import PreparedFolder
from structattn.metrics.translation import bleu_metric
from structattn.models import EncoderDecoder
from structattn.settings.evaluation import BleuTokenizer
from structattn.settings.positions import most_tokens
from structattn.settings.run import RunSettings
from structattn.settings.training import LabelSmoothing, PairBatches
from structattn.support.errors import SettingsError
from structattn.support.special_tokens import PADDING_CLASS
from structattn.tasks.smoothing import label_smoothed_cross_entropy
from structattn.tasks.task import Scores
from structattn.tasks.translation.batches import PairExamples, pairs_to_score, pairs_to_train_on
from structattn.tasks.translation.greedy_bleu import greedy_bleu
from structattn.tasks.translation.predictions import Predictions, predictions
from structattn.tasks.translation.scores import pair_scores


@dataclass(frozen=True)
class TranslationTask:
    """Translate; see `structattn.tasks.task.Task`.

    Args:
        train: what is learnt from.
        valid: what is scored during training.
        loss: what the summed nats of an update are divided by: its pairs, or its target tokens.
        label_smoothing: of the target words, in training.
        spelling_weight: α, what the spelling of unknown words counts in training, where a model spells.
        bleu: of the validation pairs, given a model and what to call between batches; None where it is not asked for.
    """

    train: PairExamples
    valid: PairExamples
    loss: Literal["sequence_sum", "token_mean"]
    label_smoothing: LabelSmoothing | None = None
    spelling_weight: float = 1.0
    bleu: Callable[[EncoderDecoder, Callable[[], None]], float] | None = None

    def training_batches(self, epoch: int) -> list[Indices]:
        """The shuffled batches of an epoch."""
        return self.train.training_order(epoch)

    def batch(self, indices: Indices) -> PairBatch:
        """The training pairs of these numbers."""
        return self.train.batch(indices)

    def loss_sum(self, model: torch.nn.Module, batch: PairBatch) -> Float[Tensor, ""]:
        """-log p(targets given their sources), words smoothed where that is asked for: J_word + α J_characters."""
        found = predictions(model, batch)
        return self._word_loss(found) + self.spelling_weight * found.character_loss()

    def _word_loss(self, found: Predictions) -> Float[Tensor, ""]:
        if self.label_smoothing is None:
            return found.word_loss()
        return label_smoothed_cross_entropy(
            found.logits.flatten(0, 1), found.classes.flatten(), self.label_smoothing, PADDING_CLASS
        )

    def loss_denominator(self, batch: PairBatch) -> int:
        """The batch's pairs or target tokens."""
        return self.num_tokens(batch) if self.loss == "token_mean" else len(batch.lengths)

    def num_tokens(self, batch: PairBatch) -> int:
        """The batch's target tokens, ``<eos>`` counted."""
        return int(batch.lengths.sum())

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation pairs, each target given its own past, and translate them where BLEU is asked for."""
        scores = pair_scores(model, self.valid, after_batch)
        return (
            scores if self.bleu is None else replace(scores, bleu=self.bleu(cast(EncoderDecoder, model), after_batch))
        )


def translation_task(prepared: PreparedFolder, settings: RunSettings) -> TranslationTask:
    """The task of a prepared folder of parallel text.

    Raises:
        DataError: the folder holds something else.
        SettingsError: the batches are not of pairs, or receptive fields are to be weighed.
    """
    training = settings.training
    batches = training.batches
    if not isinstance(batches, PairBatches):
        raise SettingsError(f"training.batches.kind: {batches.kind!r} does not suit translation; expected 'pairs'")
    if training.receptive_field_weight:
        raise SettingsError("training.receptive_field_weight: translation does not weigh receptive fields; expected 0")
    valid = pairs_to_score(prepared, "valid", batches.max_tokens, batches.max_tokens_of)
    reach = most_tokens(settings.model)
    return TranslationTask(
        train=pairs_to_train_on(prepared, batches, settings.seed, None if reach is None else reach - 1),  # <eos> is one
        valid=valid,
        loss=training.loss,
        label_smoothing=training.label_smoothing,
        spelling_weight=training.spelling_weight,
        bleu=_bleu(prepared, valid, settings.evaluation.bleu_tokenizer) if training.select_by == "bleu" else None,
    )


def _bleu(
    prepared: PreparedFolder, valid: PairExamples, tokenizer: BleuTokenizer
) -> Callable[[EncoderDecoder, Callable[[], None]], float]:
    metric = bleu_metric(tokenizer)  # what is missing is said now
    sides, references = prepared.sides, prepared.texts("valid", "target")
    return lambda model, after_batch: greedy_bleu(model, valid, sides, references, metric, after_batch)
