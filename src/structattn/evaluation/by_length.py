"""Cross-entropy and lower bound of all sequences of each length."""

from dataclasses import dataclass

import numpy as np

from structattn.data.folders.prepared import Sequences
from structattn.data.formal_languages.bound import lower_bound
from structattn.evaluation.cross_entropy import Nats


@dataclass(frozen=True)
class LengthScore:
    """The score of the sequences of one length, in nats per symbol, ``<eos>`` counted.

    Args:
        length: tokens of each sequence.
        num_sequences: how many there are.
        cross_entropy: -log p / (num_sequences · (length + 1)).
        lower_bound: that of the true distribution given the length (N = 1); None where it is not known.
        cross_entropy_difference: what the model needs more.
        accuracy: the part of the answers' symbols that is right, where answers are asked for; ``length`` is then that
            of what is asked.
        accuracy_greedy: the same if the model reads its own answers; None where it answers all at once.
    """

    length: int
    num_sequences: int
    cross_entropy: float
    lower_bound: float | None
    cross_entropy_difference: float | None
    accuracy: float | None = None
    accuracy_greedy: float | None = None


def scores_by_length(nats: Nats, sequences: Sequences) -> list[LengthScore]:
    """One score for each length that occurs, by rising length.

    The bound takes the length as known, although the model has to predict it: a perfect model of strings with N equally
    probable lengths stays log N / (length + 1) above it (DuSell & Chiang 2024, section 6).
    """
    lengths = sequences.lengths
    return [_of_length(int(length), nats, sequences) for length in np.unique(lengths)]


def _of_length(length: int, nats: Nats, sequences: Sequences) -> LengthScore:
    chosen = sequences.lengths == length
    count = int(chosen.sum())
    cross_entropy = float(nats[chosen].sum() / (count * (length + 1)))
    if sequences.log_probabilities is None:
        return LengthScore(length, count, cross_entropy, None, None)
    bound = lower_bound(sequences.log_probabilities[chosen], sequences.lengths[chosen], number_of_lengths=1)
    return LengthScore(length, count, cross_entropy, bound, cross_entropy - bound)
