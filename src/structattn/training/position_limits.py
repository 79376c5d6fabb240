"""Whether positions that are learnt reach to the end of all examples."""

from collections.abc import Iterable

import numpy as np

from structattn.data.folders import PreparedFolder, Sequences
from structattn.settings.positions import max_positions
from structattn.settings.run import RunSettings
from structattn.settings.training import StreamBatches
from structattn.support.errors import SettingsError


def require_positions_that_reach(
    settings: RunSettings, prepared: PreparedFolder, splits: Iterable[str] = ("train", "valid")
) -> None:
    """Refuse data that would be found too long in the middle of the work.

    Args:
        settings: of the run.
        prepared: its data.
        splits: what is read of them; those that are not there are passed over.

    Raises:
        SettingsError: a sequence has more tokens than there are positions; the message names it.
    """
    maximum = max_positions(settings.model)
    if maximum is None:
        return
    if isinstance(settings.training.batches, StreamBatches):
        _require(settings.training.batches.sequence_length, maximum, "training.batches.sequence_length")
        return
    for split in sorted({*splits} & {*prepared.splits}):
        sides = {"": prepared.split(split)} | (
            {" source": prepared.pairs(split).source} if prepared.parallel_sides is not None else {}
        )
        for side, sequences in sides.items():
            _require_sequences(sequences, prepared.kind, maximum, f"{split}{side}")


def _require_sequences(sequences: Sequences, kind: str, maximum: int, where: str) -> None:
    if not len(sequences):
        return
    longest = int(np.argmax(sequences.lengths))
    marks = 0 if kind == "transduction" else 1  # <bos> or <eos>; strings into strings have a symbol between them
    _require(int(sequences.lengths[longest]) + marks, maximum, f"{where}, example {longest}")


def _require(tokens: int, maximum: int, what: str) -> None:
    if tokens > maximum:
        raise SettingsError(f"model.positions.max_positions: there are {maximum}; {what}: {tokens} tokens")
