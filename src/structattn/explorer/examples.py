"""Examples of a split as batches of size 1, and those that are chosen by default."""

import numpy as np

from structattn.explorer.pairs import stored_pair_batch
from structattn.loading.trained_run import TrainedRun
from structattn.models import EncoderDecoder
from structattn.settings.run import RunSettings
from structattn.settings.tasks import MASKED_LANGUAGE_MODELING
from structattn.settings.training import StreamBatches
from structattn.support.errors import UsageError
from structattn.tasks.masked.batches import masked_examples
from structattn.tasks.transductions.batches import FORMS, form_of, stored_pair
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch, make_batch, make_stream_batch
from structattn.text.folders.prepared import PreparedFolder

MAX_TOKENS = 1024  # of an example, of either side
MIN_DEFAULT_TOKENS, MAX_DEFAULT_TOKENS = 10, 120  # of examples chosen by default: informative and legible
LONGEST_DEFAULT = 400  # where there are too few of these: a map has the square of that many numbers


def default_examples(run: TrainedRun, split: str, count: int) -> list[int]:
    """Return the first ``count`` examples of 10 to 120 tokens, followed by others if there are too few.

    Examples of more than 400 tokens are excluded, so there may be fewer.
    """
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return (
            list(range(min(count, num_examples(run.settings, run.prepared, split))))
            if batches.sequence_length <= LONGEST_DEFAULT
            else []
        )
    lengths = run.prepared.split(split).lengths
    longest = np.maximum(lengths, run.prepared.pairs(split).source.lengths) if run.prepared.parallel_sides else lengths
    fitting = (lengths >= MIN_DEFAULT_TOKENS) & (longest <= MAX_DEFAULT_TOKENS)
    others = ~fitting & (longest < LONGEST_DEFAULT)  # <bos> or <eos> is also a token
    return [*np.flatnonzero(fitting).tolist(), *np.flatnonzero(others).tolist()][:count]


def num_examples(settings: RunSettings, prepared: PreparedFolder, split: str) -> int:
    """Return the number of examples of a split: sequences, or windows of a stream."""
    sequences, batches = prepared.split(split), settings.training.batches
    if isinstance(batches, StreamBatches):
        return -(-sequences.num_targets // batches.sequence_length)
    return len(sequences)


def require_example(settings: RunSettings, prepared: PreparedFolder, split: str, example: int) -> None:
    """Check that a split has an example.

    Raises:
        UsageError: it does not.
    """
    count = num_examples(settings, prepared, split)
    if not 0 <= example < count:
        raise UsageError(f"{split} has no example {example}; expected 0 to {count - 1}")


def example_batch(run: TrainedRun, split: str, example: int, longest: int = MAX_TOKENS) -> Batch | PairBatch:
    """Return an example of a split as a batch of size 1, with the inputs of training, but without masks.

    Raises:
        UsageError: there is no such example, or it has more than ``longest`` tokens.
    """
    require_example(run.settings, run.prepared, split, example)
    if isinstance(run.model, EncoderDecoder):
        return stored_pair_batch(run, split, example, longest)
    batch = _example(run, split, example)
    if batch.inputs.shape[1] > longest:
        count = batch.inputs.shape[1]
        raise UsageError(f"example {example} of {split} has {count} tokens; expected at most {longest}")
    return batch


def _example(run: TrainedRun, split: str, example: int) -> Batch:
    if run.settings.task in FORMS:
        return stored_pair(run.prepared, split, example, form_of(run.settings))
    if run.settings.task == MASKED_LANGUAGE_MODELING:
        return masked_examples(run.prepared, split, run.settings, 0).uncorrupted(np.array([example]))
    sequences, batches = run.prepared.split(split), run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return make_stream_batch(sequences, [example], batches.sequence_length)
    return make_batch(sequences, [example])
