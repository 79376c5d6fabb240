"""Attention weights of an encoder-decoder on pairs of a split, under teacher forcing."""

from collections.abc import Iterator

from structattn.loading.trained_run import TrainedRun
from structattn.models.encoder_decoder import EncoderDecoderExplanation
from structattn.support.progress import progress
from structattn.tasks.translation.batches import scoring_pairs
from structattn.tasks.translation.explain import explain_pairs
from structattn.tasks.translation.predictions import translation_model
from structattn.text.batching.pairs import PairBatch

BATCH_TOKENS = 2048  # a map has this many numbers per head, times the length


def explain_all_pairs(
    run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[PairBatch, EncoderDecoderExplanation]]:
    """Yield the attention weights of every layer for all pairs of a split, batch by batch, under teacher forcing.

    Weights are (B, H, S, S) in the encoder, (B, H, T, T) in the decoder, and (B, H, T, S) in cross-attention, where
    S is the source length with ``<eos>`` and T the target length with ``<bos>``; they are zero at padding.

    Args:
        run: a translation run.
        split: a split of its prepared folder.
        batch_tokens: the maximal padded size of either side of a batch.

    Cost: two forward passes, and the memory of the maps of one batch.

    Raises:
        DataError: the data are not parallel text, or the split is empty.
    """
    examples = scoring_pairs(run.prepared, split, batch_tokens, "both")
    with progress(f"Explaining {split}", len(examples.pairs), "pairs") as advance:
        for numbers in examples.scoring_order():
            batch = examples.batch(numbers)
            yield batch, explain_pairs(translation_model(run), batch)
            advance(len(numbers))
