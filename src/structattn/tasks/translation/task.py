"""Translation: the loss of reference translations, their cross-entropy, and BLEU of greedy translations.

Where a model spells, the loss of a word that is out of vocabulary is that of <unk> and of its spelling, so that the
cross-entropy is that of the text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from structattn.decoding import (
    greedy_search,
    max_target_lengths,
    start_translation,
    weights_unchanged,
)
from structattn.metrics.translation import bleu_metric
from structattn.models import EncoderDecoder
from structattn.models.mode import evaluating
from structattn.settings.embeddings import max_positions
from structattn.settings.evaluation import BleuTokenizer
from structattn.settings.run import RunSettings
from structattn.settings.training import LabelSmoothing, PairBatches
from structattn.support.devices import device_of
from structattn.support.errors import SettingsError
from structattn.support.shapes import Float
from structattn.support.special_tokens import PADDING_CLASS
from structattn.tasks.language_modeling.evaluate import score_batches
from structattn.tasks.losses import NO_REGULARIZER, ReceptiveFieldRegularizer, cross_entropy_sum
from structattn.tasks.task import ExampleTask, Scores
from structattn.tasks.translation.batches import PairExamples, scoring_pairs, training_pairs
from structattn.tasks.translation.predictions import (
    Predictions,
    layer_without_weights,
    model_inputs,
    pair_receptive_fields,
    predictions,
    predictions_from,
    spelled_source,
)
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Indices
from structattn.text.folders.parallel import ParallelSides
from structattn.text.folders.prepared import PreparedFolder


def pair_scores(
    model: torch.nn.Module, examples: PairExamples, after_batch: Callable[[], None] = lambda: None
) -> Scores:
    """Score a model on reference translations, in evaluation mode; ``after_batch`` may raise to abort."""
    batches = (examples.batch(indices) for indices in examples.scoring_order())
    return score_batches(model, batches, after_batch, lambda model, batch: predictions(model, batch).row_losses().sum())


@dataclass(frozen=True)
class GreedyBleu:
    """BLEU of greedy translations of a split, at most 50 tokens longer than their sources; ``<unk>`` is not spelled."""

    examples: PairExamples
    sides: ParallelSides
    references: Sequence[str]
    metric: Any

    @classmethod
    def of(cls, prepared: PreparedFolder, split: str, examples: PairExamples, tokenizer: BleuTokenizer) -> "GreedyBleu":
        """Return the metric of a split.

        Raises:
            UsageError: sacrebleu is not installed.
        """
        return cls(examples, prepared.sides, prepared.texts(split, "target"), bleu_metric(tokenizer))

    def __call__(self, model: EncoderDecoder, after_batch: Callable[[], None] = lambda: None) -> float:
        """Return BLEU, 0 to 100, in evaluation mode; ``after_batch`` is called after each batch and may raise."""
        texts = [""] * len(self.references)
        device = device_of(model).type
        with evaluating(model), weights_unchanged(), torch.autocast(device, enabled=False):
            for indices in self.examples.scoring_order():
                for index, text in zip(indices.tolist(), self._translated(model, indices), strict=True):
                    texts[index] = text
                after_batch()
        return float(self.metric.corpus_score(texts, [list(self.references)]).score)

    def _translated(self, model: EncoderDecoder, indices: Indices) -> list[str]:
        batch = self.examples.batch(indices).to(device_of(model))
        source, rare = spelled_source(model, batch.source, batch.unknown_source_words)
        start = start_translation(model, source, batch.source_lengths, rare)
        limits = max_target_lengths(batch.source_lengths - 1, maximum=model.max_target_positions)
        return [self.sides.target.decode(each.text) for each in greedy_search(model, start, limits)]


@dataclass(frozen=True)
class PairCriterion:
    """The training loss of pairs.

    Args:
        label_smoothing: smoothing of the target tokens.
        spelling_weight: α, the weight of the loss of spellings, for a model that spells.
        receptive_field: regularizer of the source and target inputs that predictions depend on.
    """

    label_smoothing: LabelSmoothing | None = None
    spelling_weight: float = 1.0
    receptive_field: ReceptiveFieldRegularizer = NO_REGULARIZER

    def __call__(self, model: torch.nn.Module, batch: PairBatch) -> Float[Tensor, ""]:
        """Return J_word + α J_characters: -log p of the targets, label-smoothed if set, and of their spellings.

        The regularizer of receptive fields, if set, is added.

        Raises:
            SettingsError: the regularizer is set, and a layer returns no attention weights.
        """
        if self.receptive_field.weight:
            return self._regularized_loss(cast(EncoderDecoder, model), batch.to(device_of(model)))
        return self._loss(predictions(model, batch))

    def _loss(self, predicted: Predictions) -> Float[Tensor, ""]:
        word_loss = cross_entropy_sum(predicted.logits, predicted.classes, self.label_smoothing)
        return word_loss + self.spelling_weight * predicted.character_loss()

    def _regularized_loss(self, model: EncoderDecoder, batch: PairBatch) -> Float[Tensor, ""]:
        x, weights = model.attended_hidden_states(*model_inputs(model, batch))
        missing = layer_without_weights(model, weights)
        if missing is not None:
            raise SettingsError(
                f"training.receptive_field_weight: {missing} returns no attention weights; "
                "expected layers with softmax, hard or Gaussian attention"
            )
        recursion, predicted = self.receptive_field.recursion, predictions_from(model, x, batch)
        fields = pair_receptive_fields(weights, batch.source_lengths, batch.lengths, recursion)
        field = torch.cat([fields.target, fields.source], dim=-1)
        return self._loss(predicted) + self.receptive_field(field, predicted.classes != PADDING_CLASS)


def translation_task(prepared: PreparedFolder, settings: RunSettings) -> ExampleTask[PairBatch]:
    """Return the task of translating the sentences of a prepared folder of parallel text.

    Raises:
        DataError: the folder is of another kind.
        SettingsError: the batches are not batches of pairs.
    """
    training = settings.training
    batches = training.batches
    if not isinstance(batches, PairBatches):
        raise SettingsError(f"training.batches.kind: {batches.kind!r} does not suit translation; expected 'pairs'")
    valid = scoring_pairs(prepared, "valid", batches.max_tokens, batches.max_tokens_of)
    maximum = max_positions(settings.model)
    max_length = None if maximum is None else maximum - 1  # <eos> takes a position
    train = training_pairs(prepared, batches, settings.seed, max_length)
    by_bleu, tokenizer = training.select_by == "bleu", settings.evaluation.bleu_tokenizer
    bleu = GreedyBleu.of(prepared, "valid", valid, tokenizer) if by_bleu else None

    def validate(model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        scores = pair_scores(model, valid, after_batch)
        return scores if bleu is None else replace(scores, bleu=bleu(cast(EncoderDecoder, model), after_batch))

    regularizer = ReceptiveFieldRegularizer.from_settings(training)
    criterion = PairCriterion(training.label_smoothing, training.spelling_weight, regularizer)
    return ExampleTask(train, validate, training.loss, criterion)
