"""Examples of a split as batches of size 1, and those that are chosen by default."""

from typing import Any

import numpy as np

from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import RunSettings
from structattn.settings.training import StreamBatches
from structattn.support.errors import UsageError
from structattn.tasks.registry import kind_of
from structattn.text.batching.pairs import PairBatch
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


def example_batch(run: TrainedRun, split: str, example: int, longest: int = MAX_TOKENS) -> Any:
    """Return an example of a split as a batch of size 1, with the inputs of training, but without masks.

    Raises:
        UsageError: there is no such example, or it has more than ``longest`` tokens.
    """
    require_example(run.settings, run.prepared, split, example)
    batch = kind_of(run).explainer(run).example(split, example)
    require_short(batch, f"example {example} of {split}", longest)
    return batch


def require_short(batch: Any, name: str, longest: int = MAX_TOKENS) -> None:
    """Raise UsageError if an example, or either side of a pair, has more than ``longest`` tokens."""
    count = max(batch.inputs.shape[1], batch.source.shape[1] if isinstance(batch, PairBatch) else 0)
    if count > longest:
        raise UsageError(f"{name} has {count} tokens; expected at most {longest}")
