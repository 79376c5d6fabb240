"""BLEU during training: what a model makes of the validation sources, greedily."""

from collections.abc import Callable, Sequence
from typing import Any

from structattn.data.batching.sequences import Indices
from structattn.data.folders.parallel_side import ParallelSides
from structattn.decoding import greedy_search, max_target_lengths, start_translation
from structattn.models import EncoderDecoder
from structattn.tasks.translation.batches import PairExamples
from structattn.tasks.translation.predictions import spelt_source


def greedy_bleu(
    model: EncoderDecoder,
    examples: PairExamples,
    sides: ParallelSides,
    references: Sequence[str],
    metric: Any,
    after_batch: Callable[[], None] = lambda: None,
) -> float:
    """BLEU, 0 to 100, of greedy translations, at most 50 tokens longer than their sources; ``<unk>`` is not spelt.

    Args:
        model: what translates; it is left in the mode in which it was.
        examples: the pairs; of their targets nothing is seen.
        sides: how ids become text.
        references: the text of every target, in the order of the pairs.
        metric: sacrebleu's BLEU.
        after_batch: called often; may raise to end it.
    """
    was_training = model.training
    model.eval()
    texts = [""] * len(references)
    try:
        for numbers in examples.scoring_order():
            for number, text in zip(numbers.tolist(), _translated(model, examples, numbers, sides), strict=True):
                texts[number] = text
            after_batch()
    finally:
        model.train(was_training)
    return float(metric.corpus_score(texts, [list(references)]).score)


def _translated(model: EncoderDecoder, examples: PairExamples, numbers: Indices, sides: ParallelSides) -> list[str]:
    batch = examples.batch(numbers).to(next(model.parameters()).device)
    source, rare = spelt_source(model, batch.source, batch.unknown_source_words)
    start = start_translation(model, source, batch.source_lengths, rare)
    limits = max_target_lengths(batch.source_lengths - 1, maximum=model.max_target_positions)
    found = greedy_search(model, start, limits)
    return [sides.target.decode(hypothesis.text) for hypothesis in found]
