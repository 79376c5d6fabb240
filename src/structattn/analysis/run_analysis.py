"""Explain what the layers of a run do on examples, and write the records to the run folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from structattn.analysis.pairs import stored_pair_batch
from structattn.analysis.receptive_fields import receptive_field_records
from structattn.data.batching.pairs import PairBatch
from structattn.data.batching.sequences import Batch, make_batch, make_stream_batch
from structattn.inference.explanations import example_records
from structattn.inference.records import Record, write_record
from structattn.inference.runs import open_run
from structattn.inference.trained_run import TrainedRun
from structattn.models import EncoderDecoder
from structattn.settings.tasks import MASKED_LANGUAGE_MODELING
from structattn.settings.training import StreamBatches
from structattn.support.errors import UsageError
from structattn.support.files import create_folder
from structattn.support.progress import progress
from structattn.tasks.masked.batches import masked_examples
from structattn.tasks.transduction.batches import FORMS, form_of, stored_pair

MAX_TOKENS = 400  # of an example; a map has the square of that many numbers
MIN_DEFAULT_TOKENS, MAX_DEFAULT_TOKENS = 10, 120  # of examples chosen by default: informative and legible


def analyze(
    run_dir: Path, split: str = "test", examples: Sequence[int] = (0,), checkpoint: str | None = None
) -> list[Path]:
    """Explain every layer of a run's model on examples of a split; write ``records/*.json`` to its folder.

    Args:
        run_dir: a run folder.
        split: a split of its prepared folder.
        examples: indices of sequences in file order; of windows, if the data are a stream; of pairs, for translation,
            which are explained under teacher forcing.
        checkpoint: ``best``, ``last``, or ``best-K`` or ``last-K`` for the average of the weights of K checkpoints; by
            default the checkpoint in the run's evaluation settings.

    Returns:
        The paths of the records, one for each layer, sublayer and head.

    Raises:
        UsageError: the split has no such example, or the example is longer than 400 tokens.
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
    """
    return analyze_run(open_run(run_dir, checkpoint), split, examples)


def analyze_run(run: TrainedRun, split: str, examples: Sequence[int] = (0,)) -> list[Path]:
    """Explain a run that is already open; see ``analyze``."""
    folder = run.run_dir / "records"
    create_folder(folder)
    paths = []
    with progress(f"Explaining {split}", len(examples), "examples") as advance:
        for example in examples:
            records = _records(run, split, example)
            paths += [write_record(folder, record, split, example) for record in records]
            advance()
    return paths


def default_examples(run: TrainedRun, split: str, count: int) -> list[int]:
    """Return the first ``count`` examples of 10 to 120 tokens, followed by others if there are too few.

    Examples that are too long to be explained are excluded, so there may be fewer.
    """
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return list(range(min(count, num_examples(run, split)))) if batches.sequence_length <= MAX_TOKENS else []
    lengths = run.prepared.split(split).lengths
    longest = np.maximum(lengths, run.prepared.pairs(split).source.lengths) if run.prepared.parallel_sides else lengths
    fitting = (lengths >= MIN_DEFAULT_TOKENS) & (longest <= MAX_DEFAULT_TOKENS)
    others = ~fitting & (longest < MAX_TOKENS)  # <bos> or <eos> is also a token
    return [*np.flatnonzero(fitting).tolist(), *np.flatnonzero(others).tolist()][:count]


def num_examples(run: TrainedRun, split: str) -> int:
    """Return the number of examples of a split: sequences, or windows of a stream."""
    sequences, batches = run.prepared.split(split), run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return -(-sequences.num_targets // batches.sequence_length)
    return len(sequences)


def _require_example(run: TrainedRun, split: str, example: int) -> None:
    count = num_examples(run, split)
    if not 0 <= example < count:
        raise UsageError(f"{split} has no example {example}; expected 0 to {count - 1}")


def _records(run: TrainedRun, split: str, example: int) -> list[Record]:
    return batch_records(run, example_batch(run, split, example))


def batch_records(run: TrainedRun, batch: Batch | PairBatch, depths: int = 0) -> list[Record]:
    """Return the records of all layers and heads for a batch of size 1, and its receptive fields.

    Args:
        run: the trained run.
        batch: a sequence, or a pair, explained under teacher forcing.
        depths: the number of depths of stacks whose contents are computed.
    """
    records = example_records(run.model, run.prepared, batch, depths)
    last = max((record.layer for record in records if record.side != "encoder"), default=0)
    return [*records, *receptive_field_records(run, batch, last)]


def example_batch(run: TrainedRun, split: str, example: int, longest: int = MAX_TOKENS) -> Batch | PairBatch:
    """Return an example of a split as a batch of size 1, with the inputs of training, but without masks.

    Raises:
        UsageError: there is no such example, or it has more than ``longest`` tokens.
    """
    _require_example(run, split, example)
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
