"""What an encoder-decoder attends to in given pairs: sources read whole, targets token by token, the true ones."""

from collections.abc import Iterator

import numpy as np

from structattn.data.batching.pairs import PairBatch, make_pair_batch
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.inference.explanations import explain_pairs, records_of_pair
from structattn.inference.records import Record
from structattn.inference.runs import TrainedRun, translation_model
from structattn.models.encoder_decoder import EncoderDecoderExplanation
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.tasks.translation.batches import pairs_to_score

BATCH_TOKENS = 2048  # a batch's maps have as many numbers for each head, times the length


def explained_pairs(
    run: TrainedRun, split: str, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[PairBatch, EncoderDecoderExplanation]]:
    """What every layer attends to in all pairs of a split, batch by batch, under teacher forcing.

    Weights are (B, H, S, S) in the encoder, (B, H, T, T) in the decoder, and (B, H, T, S) across, where S counts the
    source with its ``<eos>`` and T the target after ``<bos>``; past the lengths of a pair they are zeros.

    Args:
        run: a translation run.
        split: a split of its prepared folder.
        batch_tokens: the largest padded size of either side of a batch.

    Cost: two passes through the model, and the memory of a batch's maps.

    Raises:
        DataError: the data are no parallel text, or the split is empty.
    """
    examples = pairs_to_score(run.prepared, split, batch_tokens, "both")
    with progress(f"Attending {split}", len(examples.pairs), "pairs") as advance:
        for numbers in examples.scoring_order():
            batch = examples.batch(numbers)
            yield batch, explain_pairs(translation_model(run), batch)
            advance(len(numbers))


def pair_records(run: TrainedRun, split: str, example: int, longest: int) -> list[Record]:
    """The records of all heads of all layers for one pair.

    Args:
        run: a translation run.
        split: a split of its prepared folder.
        example: the pair's number.
        longest: tokens that either side may have at most.

    Raises:
        UsageError: a side is longer.
    """
    batch = make_pair_batch(run.prepared.pairs(split), [example])
    sides = run.prepared.sides
    source = _symbols(sides.source.vocabulary, batch.source[0].numpy())
    target = _symbols(sides.target.vocabulary, batch.inputs[0].numpy())
    for tokens in (source, target):
        if len(tokens) > longest:
            raise UsageError(f"pair {example} of {split} has {len(tokens)} tokens; a map shows at most {longest}")
    return records_of_pair(translation_model(run), sides, batch)


def _symbols(vocabulary: Vocabulary, ids: np.ndarray) -> tuple[str, ...]:
    return tuple(vocabulary.symbols[token] for token in ids.tolist())
