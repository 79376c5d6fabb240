"""n-gram baselines against the definition in plain Python, and on WikiText-2 in seconds."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from structattn.support.errors import DataError
from structattn.tasks.language_modeling.ngrams import fit_ngrams, fitted_weights, ngram_baselines
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

WIKITEXT = Path(__file__).resolve().parents[4] / "shared/data/wikitext-2"
SIZE = 9  # ids 3 to 8; 8 never occurs in the training split


def random_rows(seed, count, highest):
    generator = np.random.Generator(np.random.Philox(seed))
    return [generator.integers(3, highest + 1, generator.integers(0, 6)).tolist() for _ in range(count)]


@pytest.fixture(params=["sentences", "stream"])
def prepared(request, tmp_path):
    splits = {"train": random_rows(1, 60, 7), "valid": random_rows(2, 30, 8), "test": random_rows(3, 20, 8)}
    write_prepared(
        tmp_path / "folder",
        kind=request.param,
        vocabulary=Vocabulary.from_symbols("abcdef"),
        tokenizer={"level": "character"},
        splits=splits,
    )
    return open_prepared(tmp_path / "folder")


def rows_of(sequences):
    return [sequences[index].tolist() for index in range(len(sequences))]


def events(rows, stream):
    """Return each target with its history, the most recent symbol last."""
    if stream:
        symbols = [2, 2] + [symbol for row in rows for symbol in (*row, 2)]
        lines = [symbols]
    else:
        lines = [[1, 1, *row, 2] for row in rows]
    return [
        (tuple(line[position - 2 : position]), line[position]) for line in lines for position in range(2, len(line))
    ]


def estimates(train, history, symbol):
    """Return 1/|V|, f(w), f(w|v), f(w|u,v), with an unseen history replaced by the next shorter one."""
    values = [1 / (SIZE - 2)]
    for length in range(3):
        context = history[2 - length :]
        following = Counter(target for past, target in train if past[2 - length :] == context)
        values.append(following[symbol] / following.total() if following else values[-1])
    return values


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_equal_the_definition(prepared, order):
    stream = prepared.kind == "stream"
    train = events(rows_of(prepared.split("train")), stream)
    model = fit_ngrams(prepared, order)
    test = events(rows_of(prepared.split("test")), stream)
    rows = [estimates(train, history, symbol)[: order + 1] for history, symbol in test]
    expected = np.log(np.array(rows) @ np.array(model.weights))
    np.testing.assert_allclose(model.log_probabilities(prepared.split("test")), expected, rtol=1e-12)
    assert len(expected) == prepared.split("test").num_targets
    assert model.perplexity(prepared.split("test")) == pytest.approx(math.exp(-expected.mean()), rel=1e-12)


def test_weights_maximise_the_likelihood(prepared):
    stream = prepared.kind == "stream"
    train = events(rows_of(prepared.split("train")), stream)
    valid = np.array([estimates(train, *event) for event in events(rows_of(prepared.split("valid")), stream)])
    weights = np.array(fit_ngrams(prepared).weights)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert (weights > 0).all()

    def fit(candidate):  # the likelihood with the prior of one observation for each weight
        return np.log(valid @ candidate).sum() + np.log(candidate).sum()

    for direction in np.random.Generator(np.random.Philox(4)).normal(size=(50, 4)):
        step = 1e-3 * (direction - direction.mean())
        if (weights + step > 0).all():
            assert fit(weights + step) < fit(weights)


@pytest.mark.parametrize("history", [[3], [3, 4], [8, 3], [3, 8], [8, 8], []])
def test_probabilities_sum_to_one_after_any_history(prepared, history):
    model = fit_ngrams(prepared)
    tails = []
    for symbol in range(3, SIZE):
        row = np.array([*history, symbol], dtype=np.int32)
        tails.append(model.log_probabilities(Sequences(row, np.array([0, len(row)])))[len(history)])
    row = np.array(history, dtype=np.int32)
    tails.append(model.log_probabilities(Sequences(row, np.array([0, len(row)])))[-1])  # <eos>
    assert np.exp(tails).sum() == pytest.approx(1, rel=1e-12)


def test_weights_recover_a_known_mixture():
    generator = np.random.Generator(np.random.Philox(5))
    estimate = generator.dirichlet(np.ones(50), size=3)
    true = np.array([0.5, 0.2, 0.3])
    drawn = generator.choice(50, size=200_000, p=true @ estimate)
    np.testing.assert_allclose(fitted_weights(estimate.T[drawn]), true, atol=0.02)


def test_an_unseen_symbol_has_a_positive_probability(prepared):
    row = Sequences(np.array([8], dtype=np.int32), np.array([0, 1]))
    for order in (1, 3):
        assert math.isfinite(fit_ngrams(prepared, order).perplexity(row))


def test_baselines_are_json(prepared):
    baselines = ngram_baselines(prepared, "test")
    assert set(baselines) == {"unigram", "trigram"}
    assert baselines["trigram"] == {
        "perplexity": fit_ngrams(prepared).perplexity(prepared.split("test")),
        "weights": list(fit_ngrams(prepared).weights),
    }
    assert [len(baselines[name]["weights"]) for name in ("unigram", "trigram")] == [2, 4]


def test_impossible_requests_are_rejected(prepared):
    with pytest.raises(ValueError, match="order is 4"):
        fit_ngrams(prepared, 4)
    with pytest.raises(DataError, match="no split 'other'"):
        ngram_baselines(prepared, "other")
    empty = Sequences(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="without sequences"):
        fit_ngrams(prepared).perplexity(empty)


@pytest.mark.skipif(not WIKITEXT.is_dir(), reason="../shared/data/wikitext-2 is not there")
def test_wikitext_has_its_perplexities(tmp_path):
    texts = [WIKITEXT / f"{split}.txt" for split in ("train", "valid", "test")]
    prepare_language_modeling(tmp_path / "folder", *texts, settings=TextSettings(mode="stream"))
    baselines = ngram_baselines(open_prepared(tmp_path / "folder"), "test")
    assert baselines["unigram"]["perplexity"] == pytest.approx(911.71, abs=0.01)
    assert baselines["trigram"]["perplexity"] == pytest.approx(264.77, abs=0.01)
