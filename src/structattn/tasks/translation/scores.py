"""Cross-entropy of reference translations, and BLEU of greedy translations.

Where a model spells, the loss of a word that is out of vocabulary is that of <unk> and of its spelling, so that the
cross-entropy is that of the text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from structattn.acceleration import accelerate_decoder
from structattn.data.batching.sequences import Indices
from structattn.data.folders import PreparedFolder
from structattn.data.folders.parallel_side import ParallelSides
from structattn.decoding import (
    TranslationModel,
    greedy_search,
    max_target_lengths,
    start_translation,
    weights_unchanged,
)
from structattn.metrics.translation import bleu_metric
from structattn.models import EncoderDecoder
from structattn.models.mode import evaluating
from structattn.settings.evaluation import BleuTokenizer
from structattn.tasks.task import Scores, perplexity
from structattn.tasks.translation.batches import PairExamples
from structattn.tasks.translation.predictions import predictions, spelled_source


def pair_scores(
    model: torch.nn.Module, examples: PairExamples, after_batch: Callable[[], None] = lambda: None
) -> Scores:
    """Score a model on reference translations, in evaluation mode; ``after_batch`` may raise to abort."""
    loss_sum, num_tokens = 0.0, 0
    with evaluating(model):
        for indices in examples.scoring_order():
            batch = examples.batch(indices)
            with torch.no_grad():
                loss_sum += predictions(model, batch).row_losses().sum().item()
            num_tokens += int(batch.lengths.sum())
            after_batch()
    return Scores(len(examples.pairs), num_tokens, loss_sum / num_tokens, perplexity(loss_sum / num_tokens))


@dataclass(frozen=True)
class GreedyBleu:
    """BLEU of greedy translations of a split, at most 50 tokens longer than their sources; ``<unk>`` is not spelled.

    Args:
        examples: the pairs; only their sources are used.
        sides: the tokenizers, which turn ids into text.
        references: the target texts, in the order of the pairs.
        metric: sacrebleu's BLEU.
    """

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
        texts, fast = [""] * len(self.references), accelerate_decoder(model)
        device = next(model.parameters()).device.type
        with evaluating(model), weights_unchanged(), torch.autocast(device, enabled=False):
            for indices in self.examples.scoring_order():
                for index, text in zip(indices.tolist(), self._translated(model, fast, indices), strict=True):
                    texts[index] = text
                after_batch()
        return float(self.metric.corpus_score(texts, [list(self.references)]).score)

    def _translated(self, model: EncoderDecoder, fast: TranslationModel, indices: Indices) -> list[str]:
        batch = self.examples.batch(indices).to(next(model.parameters()).device)
        source, rare = spelled_source(model, batch.source, batch.unknown_source_words)
        start = start_translation(fast, source, batch.source_lengths, rare)
        limits = max_target_lengths(batch.source_lengths - 1, maximum=model.max_target_positions)
        return [self.sides.target.decode(found.text) for found in greedy_search(fast, start, limits)]
