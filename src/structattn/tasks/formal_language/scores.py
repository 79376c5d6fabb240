"""The lower bound of a split of strings, from their exact probabilities."""

from structattn.data.folders import PreparedFolder
from structattn.metrics.lower_bound import lower_bound
from structattn.support.errors import DataError


def split_lower_bound(prepared: PreparedFolder, split: str) -> float:
    """LB = [Σ -log p(w | |w|) + |D| log N] / Σ (|w| + 1), in nats per symbol, for N valid lengths.

    Raises:
        DataError: the folder does not hold the probabilities, or the number of lengths.
    """
    sequences = prepared.split(split)
    number_of_lengths = prepared.header.extra.get("number_of_lengths", {}).get(split)
    if sequences.log_probabilities is None or not isinstance(number_of_lengths, int):
        raise DataError(prepared.path, f"split {split!r} lacks its exact probabilities or its number of lengths")
    return lower_bound(sequences.log_probabilities, sequences.lengths, number_of_lengths)
