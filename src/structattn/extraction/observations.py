"""Run a model on strings, with its stack observed, or with the outputs of its projection replaced."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structattn.extraction.stacks import Observation, StackReader, projection_hook
from structattn.loading.trained_run import TrainedRun
from structattn.support.devices import device_of
from structattn.support.progress import progress
from structattn.support.special_tokens import PADDING_CLASS, class_of
from structattn.text.batching.sequences import Batch, make_batch, token_batches

BATCH_TOKENS = 4096
String = NDArray[np.integer[Any]]


def batches_of(strings: Sequence[String]) -> Iterator[Batch]:
    """Yield batches of strings of similar lengths, given as ids without ``<bos>``."""
    lengths = np.array([len(string) for string in strings], dtype=np.int64)
    for indices in token_batches(lengths, BATCH_TOKENS, seed=0, epoch=None):
        yield make_batch(strings, indices)


@torch.no_grad()
def observe(
    run: TrainedRun, reader: StackReader, strings: Sequence[String], *, with_runs: bool = False, what: str = "strings"
) -> list[Observation]:
    """Return what the model of a run does on each string.

    Cost: with runs, for each string of n symbols those of n sequences.
    """
    found: dict[int, Observation] = {}
    device = device_of(run.model)
    with progress(f"Observing {what}", len(strings), "strings") as advance:
        for batch in batches_of(strings):
            outputs: list[Tensor] = []
            with projection_hook(reader, lambda output, outputs=outputs: outputs.append(output)):
                logits = run.model(batch.inputs.to(device), lengths=batch.lengths.to(device))
            for index, each in zip(
                batch.examples, _of_batch(reader, batch, outputs[0], logits, with_runs), strict=True
            ):
                found[index] = each
                advance()
    return [found[index] for index in range(len(strings))]


def _of_batch(
    reader: StackReader, batch: Batch, output: Tensor, logits: Tensor, with_runs: bool
) -> Iterable[Observation]:
    features, values = reader.features(output), output[..., reader.sizes[0] :]
    log_probabilities = logits.double().log_softmax(-1)
    for row, length in enumerate(batch.lengths.tolist()):
        runs = reader.runs(output[row : row + 1], batch.lengths[row : row + 1])[0] if with_runs else None
        kept = [x[row, :length].double().cpu().numpy() for x in (features, values, log_probabilities)]
        ids = batch.inputs[row, :length].numpy()
        yield Observation(ids, kept[0], kept[1], kept[2], None if runs is None else tuple(runs))


Replacement = Callable[[Tensor, Tensor], Tensor]
"""Takes ids (B, T) and the outputs of the projection; returns other outputs."""


@torch.no_grad()
def cross_entropy(
    run: TrainedRun, reader: StackReader, strings: Sequence[String], replacement: Replacement | None = None
) -> float:
    """Return the mean -log p of all symbols and ends, in nats, with the outputs of the stack's projection replaced."""
    total, count = 0.0, 0
    device = device_of(run.model)
    for batch in batches_of(strings):
        inputs = batch.inputs.to(device)
        with projection_hook(reader, lambda output, ids=inputs: replacement and replacement(ids, output)):
            logits = run.model(inputs, lengths=batch.lengths.to(device))
        classes = class_of(batch.targets)
        known = classes != PADDING_CLASS
        log_probabilities = logits.double().log_softmax(-1).cpu()
        total -= float(log_probabilities[known].gather(-1, classes[known][:, None]).sum())
        count += int(known.sum())
    return total / count
