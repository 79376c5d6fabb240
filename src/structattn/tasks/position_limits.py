"""Check that no example is longer than the number of learned positions."""

from collections.abc import Iterable, Iterator

import numpy as np

from structattn.settings.embeddings import max_positions, max_positions_field
from structattn.settings.run import MASKED_LANGUAGE_MODELING, RunSettings
from structattn.settings.training import StreamBatches
from structattn.settings.transformer import reads_bos
from structattn.support.errors import SettingsError
from structattn.text.folders.prepared import PreparedFolder


def require_positions_fit(
    settings: RunSettings, prepared: PreparedFolder, splits: Iterable[str] = ("train", "valid")
) -> None:
    """Check before training or evaluation that the learned positions cover the longest example.

    Raises:
        SettingsError: an example has more tokens than the model has positions; the message names the example.
    """
    maximum = max_positions(settings.model)
    if maximum is None:
        return
    for num_tokens, longest in _longest_inputs(settings, prepared, splits):
        if num_tokens > maximum:
            field = max_positions_field(settings.model)
            raise SettingsError(f"{field}: {longest}; the model has {maximum} learned positions")


def _longest_inputs(
    settings: RunSettings, prepared: PreparedFolder, splits: Iterable[str]
) -> Iterator[tuple[int, str]]:
    """Yield the number of tokens of the longest input of each split, and its name."""
    if isinstance(settings.training.batches, StreamBatches):
        length, with_bos = settings.training.batches.sequence_length, _is_masked(settings) and reads_bos(settings.model)
        stated = f"training.batches.sequence_length is {length}"
        yield length + with_bos, f"{stated}, and <bos> takes a position" if with_bos else stated
        return
    for split in sorted({*splits} & {*prepared.splits}):
        sides = {"": prepared.split(split)} | (
            {" source": prepared.pairs(split).source} if prepared.parallel_sides is not None else {}
        )
        for side, sequences in sides.items():
            if len(sequences):
                longest = int(np.argmax(sequences.lengths))
                num_tokens = int(sequences.lengths[longest]) + _num_added(settings, prepared.kind)
                yield num_tokens, f"{split}{side} example {longest} has {num_tokens} tokens"


def _num_added(settings: RunSettings, kind: str) -> int:
    """Return how many more tokens the inputs of the model have than a stored example."""
    if _is_masked(settings):
        return 1 + reads_bos(settings.model)  # <eos>, <bos>
    if kind != "transduction":
        return 1  # <bos> or <eos>
    # a stored transduction has a separator, and the inputs <bos>: in its place, or instead of the last symbol
    return 0 if reads_bos(settings.model) else -1


def _is_masked(settings: RunSettings) -> bool:
    return settings.task == MASKED_LANGUAGE_MODELING
