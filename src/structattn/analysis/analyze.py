"""Explains what a run's layers do with examples, and keeps the records in the run folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from structattn.analysis.pairs import pair_records
from structattn.analysis.receptive_fields import receptive_field_record
from structattn.data.batching.sequences import Batch, make_batch, make_stream_batch
from structattn.inference.explanations import sequence_records
from structattn.inference.records import Record, write_record
from structattn.inference.runs import TrainedRun, open_run
from structattn.models import EncoderDecoder
from structattn.settings.training import StreamBatches
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.tasks.transduction.batches import FORMS, stored_pair

LONGEST = 400  # tokens; a map has the square of that many numbers
SHORTEST_SHOWN, LONGEST_SHOWN = 10, 120  # tokens of an example that nobody chose: enough to see, and legible


def analyze(folder: Path, split: str, examples: Sequence[int] = (0,), checkpoint: str | None = None) -> list[Path]:
    """Explain every layer of a run's model on examples of a split; write ``records/*.json`` into its folder.

    Args:
        folder: a run folder.
        split: a split of its prepared folder.
        examples: numbers of sequences in file order; of windows, where the data are a stream; of pairs, where lines
            are translated, which are explained under teacher forcing.
        checkpoint: ``best``, ``last``, or ``best-K`` or ``last-K`` for the mean of the weights of K of them; what the
            run's settings say, if left out.

    Returns:
        The files, one for each layer, or for each sublayer, or each head, of a layer that has several.

    Raises:
        UsageError: the split has no such example, or it is longer than 400 tokens.
        StructattnError: run, checkpoint or data are missing, damaged, or do not belong together.
    """
    return analyze_run(open_run(folder, checkpoint), split, examples)


def analyze_run(run: TrainedRun, split: str, examples: Sequence[int] = (0,)) -> list[Path]:
    """Do what `analyze` does for a run that is open already."""
    folder = run.run_dir / "records"
    folder.mkdir(exist_ok=True)
    paths = []
    with progress(f"Explaining {split}", len(examples), "examples") as advance:
        for example in examples:
            _require(run, split, example)
            records = _records(run, split, example)
            paths += [write_record(folder, record, split, example) for record in records]
            advance()
    return paths


def first_examples(run: TrainedRun, split: str, count: int) -> list[int]:
    """The first ``count`` examples worth looking at: of 10 to 120 tokens, and others only where those are too few.

    None that is too long to be explained, so there may be fewer.
    """
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return list(range(min(count, example_count(run, split)))) if batches.sequence_length <= LONGEST else []
    lengths = run.prepared.split(split).lengths
    longest = np.maximum(lengths, run.prepared.pairs(split).source.lengths) if run.prepared.parallel_sides else lengths
    fitting = (lengths >= SHORTEST_SHOWN) & (longest <= LONGEST_SHOWN)
    others = ~fitting & (longest < LONGEST)  # <bos> or <eos> is a token, too
    return [*np.flatnonzero(fitting).tolist(), *np.flatnonzero(others).tolist()][:count]


def example_count(run: TrainedRun, split: str) -> int:
    """How many examples a split has: its sequences, or its windows, where the data are a stream."""
    sequences, batches = run.prepared.split(split), run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return -(-sequences.num_targets // batches.sequence_length)
    return len(sequences)


def _require(run: TrainedRun, split: str, example: int) -> None:
    count = example_count(run, split)
    if not 0 <= example < count:
        raise UsageError(f"{split} has no example {example}; expected 0 to {count - 1}")


def _records(run: TrainedRun, split: str, example: int) -> list[Record]:
    if isinstance(run.model, EncoderDecoder):
        return pair_records(run, split, example, LONGEST)
    batch = _example(run, split, example)
    symbols = run.prepared.vocabulary.symbols
    tokens = [symbols[token] for token in batch.inputs[0].tolist()]
    if len(tokens) > LONGEST:
        raise UsageError(f"example {example} of {split} has {len(tokens)} tokens; a map shows at most {LONGEST}")
    records = sequence_records(run.model, run.prepared.vocabulary, batch.inputs)
    last = max((record.layer for record in records), default=0)
    device = next(run.model.parameters()).device
    field = receptive_field_record(run, batch.inputs.to(device), tuple(tokens), last)
    return records if field is None else [*records, field]


def _example(run: TrainedRun, split: str, example: int) -> Batch:
    """As the model reads it in training."""
    if run.settings.task in FORMS:
        return stored_pair(run.prepared, split, example, FORMS[run.settings.task])
    sequences, batches = run.prepared.split(split), run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return make_stream_batch(sequences, [example], batches.sequence_length)
    return make_batch(sequences, [example])
