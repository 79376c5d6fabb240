"""Interpolated n-gram language models as baselines.

They use the vocabulary of the prepared folder and predict ``<eos>`` as neural models do, so perplexities are
comparable: each sequence of n tokens has n + 1 targets. In sentence mode the history of a sentence begins with
``<bos> <bos>``; in a stream it includes earlier lines, and the stream begins with ``<eos> <eos>``.

    p(w | u, v) = λ₀ / |V| + λ₁ f(w) + λ₂ f(w | v) + λ₃ f(w | u, v)

with relative frequencies f of the training split (Jelinek & Mercer 1980). For an unseen history, f is that of the
next shorter history, so p sums to 1 over V, the predictable symbols: all but ``<pad>`` and ``<bos>``.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from structattn.support.shapes import Float64, Int64
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS
from structattn.tasks.loaded import LoadedRun
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences

_MAX_ITERATIONS = 1000
_TOLERANCE = 1e-8  # on every weight

Ids = Int64[np.ndarray, " targets"]


@dataclass(frozen=True)
class _Targets:
    """All targets of a split with the two symbols before each, the nearest first."""

    symbols: Ids
    history: tuple[Ids, Ids]

    @classmethod
    def of(cls, sequences: Sequences, stream: bool) -> "_Targets":
        symbols = sequences.stream(0, sequences.num_targets + 1).astype(np.int64)
        previous, before = symbols[:-1], np.concatenate(([EOS], symbols[:-2]))
        if not stream:  # the history stops at the previous sentence
            previous = np.where(previous == EOS, BOS, previous)
            before = np.where((previous == BOS) | (before == EOS), BOS, before)
        return cls(symbols[1:], (previous, before))


@dataclass(frozen=True)
class _Table:
    """Counts of keys; ``keys`` is sorted."""

    keys: Int64[np.ndarray, " kinds"]
    counts: Int64[np.ndarray, " kinds"]

    @classmethod
    def of(cls, keys: Ids) -> "_Table":
        return cls(*np.unique(keys, return_counts=True))

    def index(self, keys: Ids) -> Ids:
        """Return the index of each key in the table, -1 for unseen keys."""
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1)


@dataclass(frozen=True)
class _Order:
    """The counts of all histories of one length, and of those histories with the next symbol."""

    histories: _Table
    grams: _Table


def _keys(left: Ids, right: Ids, size: int) -> Ids:
    """Encode pairs of a history index and a symbol as one integer; index -1 (unseen) gives -1, which no table holds.

    An index is less than the number of targets, so a key fits into 64 bits for any order.
    """
    return np.where(left < 0, -1, left * size + right)


def _count(targets: _Targets, size: int, order: int) -> tuple[_Order, ...]:
    orders = []
    keys = np.zeros_like(targets.symbols)  # the empty history
    for length in range(order):
        histories = _Table.of(keys)
        index = histories.index(keys)
        orders.append(_Order(histories, _Table.of(_keys(index, targets.symbols, size))))
        if length + 1 < order:
            keys = _keys(index, targets.history[length], size)
    return tuple(orders)


def _frequencies(targets: _Targets, orders: tuple[_Order, ...], size: int) -> Float64[np.ndarray, "targets estimates"]:
    """Return 1 / |V|, f(w), f(w | v), ... of every target, one column each."""
    columns = [np.full(len(targets.symbols), 1 / (size - CLASS_OFFSET))]
    keys = np.zeros_like(targets.symbols)
    for length, order in enumerate(orders):
        index = order.histories.index(keys)
        gram = order.grams.index(_keys(index, targets.symbols, size))
        count = np.where(gram < 0, 0, order.grams.counts[gram])
        columns.append(np.where(index < 0, columns[-1], count / order.histories.counts[index]))
        if length + 1 < len(orders):
            keys = _keys(index, targets.history[length], size)
    return np.stack(columns, axis=1)


def fitted_weights(
    probabilities: Float64[np.ndarray, "targets estimates"],
) -> Float64[np.ndarray, " estimates"]:
    """Return the mixture weights that maximise the likelihood of the targets, by EM.

        λₖ ← (1 + Σᵢ λₖ pᵢₖ / Σⱼ λⱼ pᵢⱼ) / (targets + estimates)

    The 1 (a uniform Dirichlet prior) keeps every weight above 0, so no symbol of another split gets probability 0.

    Args:
        probabilities: the probability of each target under each estimate; every row has an entry above 0.
    """
    targets, estimates = probabilities.shape
    weights = np.full(estimates, 1 / estimates)
    for _ in range(_MAX_ITERATIONS):
        updated = (1 + weights * ((1 / (probabilities @ weights)) @ probabilities)) / (targets + estimates)
        moved = np.abs(updated - weights).max()
        weights = updated
        if moved < _TOLERANCE:
            break
    return weights


@dataclass(frozen=True)
class NgramModel:
    """A linear interpolation of relative frequencies.

    Args:
        weights: weights of the uniform distribution, the unigram, the bigram, ...; they sum to 1.
        size: the size of the vocabulary, special symbols included.
        stream: whether histories cross line boundaries.
        orders: the counts for each order, from the unigram.
    """

    weights: tuple[float, ...]
    size: int
    stream: bool
    orders: tuple[_Order, ...]

    def log_probabilities(self, sequences: Sequences) -> Float64[np.ndarray, " targets"]:
        """Return the log-probability in nats of every target of a split, ``<eos>`` included."""
        targets = _Targets.of(sequences, self.stream)
        mixed = _frequencies(targets, self.orders, self.size) @ np.array(self.weights)
        return np.asarray(np.log(mixed), dtype=np.float64)

    def perplexity(self, sequences: Sequences) -> float:
        """Return the perplexity of a split: exp of the mean of -log p over all targets, ``<eos>`` included.

        Raises:
            ValueError: there are no sequences.
        """
        if len(sequences) == 0:
            raise ValueError("a split without sequences has no perplexity")
        return float(np.exp(-self.log_probabilities(sequences).mean()))


def fit_ngrams(prepared: PreparedFolder, order: int = 3) -> NgramModel:
    """Count n-grams up to ``order`` (1 to 3) in the training split, and fit the weights on the validation split.

    Cost: sorts the targets twice for each order; about 100 bytes of memory per training target.

    Raises:
        DataError: the folder has no split ``train`` or ``valid``.
        ValueError: ``order`` is not 1, 2 or 3, or the training split is empty.
    """
    if order not in {1, 2, 3}:
        raise ValueError(f"order is {order}; expected 1, 2 or 3")
    train, valid = prepared.split("train"), prepared.split("valid")
    if len(train) == 0:
        raise ValueError(f"{prepared.path}: the training split has no sequences to count")
    size, stream = prepared.vocabulary.size, prepared.kind == "stream"
    orders = _count(_Targets.of(train, stream), size, order)
    weights = fitted_weights(_frequencies(_Targets.of(valid, stream), orders, size))
    return NgramModel(tuple(weights.tolist()), size, stream, orders)


def ngram_baselines(prepared: PreparedFolder, split: str) -> dict[str, dict[str, Any]]:
    """Return the perplexity of a split under the unigram and the trigram model, with their mixture weights, as JSON."""
    models = {"unigram": fit_ngrams(prepared, 1), "trigram": fit_ngrams(prepared, 3)}
    sequences = prepared.split(split)
    return {
        name: {"perplexity": model.perplexity(sequences), "weights": list(model.weights)}
        for name, model in models.items()
    }


def text_baselines(run: LoadedRun, split: str) -> dict[str, dict[str, Any]]:
    """Return the scores of n-gram models on a split of text: name -> ``cross_entropy``, ``perplexity`` and so on."""
    baselines = ngram_baselines(run.prepared, split)
    return {name: {"cross_entropy": math.log(score["perplexity"]), **score} for name, score in baselines.items()}
