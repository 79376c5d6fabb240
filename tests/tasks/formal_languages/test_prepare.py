"""A formal language as a prepared folder."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from structattn.metrics.statistics import lower_bound
from structattn.support.errors import DataError, UsageError
from structattn.support.reading import MAX_INTEGER
from structattn.tasks.formal_languages import registry
from structattn.tasks.formal_languages.grammar import Grammar, normalized, rule
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import formal_language
from structattn.text.folders.prepared import open_prepared, verify_prepared

SMALL = FormalLanguageSizes(
    train=65, valid=30, test_per_length=3, train_lengths=(8, 14), test_lengths=(8, 20), group_size=10
)


def strings_of(folder, split):
    return [sequence.tolist() for sequence in open_prepared(folder).split(split)]


@pytest.fixture
def prepared(tmp_path, name, variant):
    prepare_formal_language(tmp_path / "folder", name, variant, seed=3, sizes=SMALL)
    return open_prepared(tmp_path / "folder")


def test_sets_have_their_sizes_and_lengths(prepared, name, variant):
    language = formal_language(name, variant)
    train, valid, test = (prepared.split(split) for split in ("train", "valid", "test"))
    assert (prepared.kind, prepared.splits) == ("formal_language", ("train", "valid", "test"))
    assert (len(train), len(valid)) == (65, 30)
    assert set(train.lengths.tolist()) <= set(language.valid_lengths(8, 14))
    assert test.lengths.tolist() == np.repeat(language.valid_lengths(8, 20), 3).tolist()
    for group in (*np.split(train.lengths, range(10, 65, 10)), *np.split(valid.lengths, (10, 20))):
        assert len(set(group.tolist())) == 1
    assert len(set(train.lengths.tolist())) > 1
    verify_prepared(prepared)


def test_the_header_has_the_values_for_the_bound(prepared, name, variant):
    language = formal_language(name, variant)
    assert prepared.header.extra == {
        "language": name,
        "variant": variant,
        "seed": 3,
        "test_seed": 0,
        "number_of_lengths": {
            "train": len(language.valid_lengths(8, 14)),
            "valid": len(language.valid_lengths(8, 14)),
            "test": len(language.valid_lengths(8, 20)),
        },
        "train_lengths": [8, 14],
        "test_lengths": [8, 20],
        "group_size": 10,
    }
    assert prepared.vocabulary.symbols == ("<pad>", "<bos>", "<eos>", *language.alphabet)


def test_probabilities_are_those_of_the_strings_given_their_lengths(prepared, name, judge):
    assert prepared.split("train").log_probabilities is None
    for split in ("valid", "test"):
        sequences = prepared.split(split)
        for index in range(0, len(sequences), 7):
            string, length = prepared.tokenizer.decode(sequences[index]), int(sequences.lengths[index])
            if length < 11:
                strings = judge.all_strings(length)
                expected = math.log(strings[string] / sum(strings.values()))
                assert sequences.log_probabilities[index] == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert lower_bound(sequences.log_probabilities, sequences.lengths, 1) > 0


def test_seed_determines_train_and_valid_and_test_seed_the_test_set(tmp_path):
    runs = {"one": (1, 0), "again": (1, 0), "other": (2, 0), "other test": (1, 5)}
    for run, (seed, test_seed) in runs.items():
        prepare_formal_language(tmp_path / run, "dyck", seed=seed, test_seed=test_seed, sizes=SMALL)
    drawn = {run: {split: strings_of(tmp_path / run, split) for split in ("train", "valid", "test")} for run in runs}
    assert open_prepared(tmp_path / "one").digest == open_prepared(tmp_path / "again").digest
    same = {run: [drawn[run][split] == drawn["one"][split] for split in ("train", "valid", "test")] for run in runs}
    assert same["other"] == [False, False, True]
    assert same["other test"] == [True, True, False]
    assert drawn["one"]["train"][:30] != drawn["one"]["valid"]


def test_short_strings_follow_the_training_strings(tmp_path):
    prepare_formal_language(tmp_path / "without", "marked-reversal", sizes=SMALL)
    prepare_formal_language(tmp_path / "with", "marked-reversal", sizes=replace(SMALL, short=125, short_lengths=(1, 5)))
    train, longer = (strings_of(tmp_path / name, "train") for name in ("without", "with"))
    assert longer[: len(train)] == train
    assert len(longer) == len(train) + 125
    assert {len(string) for string in longer[len(train) :]} == {1, 3, 5}
    for split in ("valid", "test"):
        assert strings_of(tmp_path / "with", split) == strings_of(tmp_path / "without", split)
    assert open_prepared(tmp_path / "with").header.extra["short"] == 125


def test_the_largest_seed_can_be_read_again(tmp_path):
    prepare_formal_language(tmp_path / "folder", "dyck", seed=MAX_INTEGER, sizes=SMALL)
    assert open_prepared(tmp_path / "folder").header.extra["seed"] == MAX_INTEGER


def test_lengths_are_sampled_uniformly(tmp_path):
    sizes = FormalLanguageSizes(
        train=4000, valid=1, test_per_length=1, train_lengths=(1, 8), test_lengths=(1, 8), group_size=1
    )
    prepare_formal_language(tmp_path / "folder", "padded-reversal", sizes=sizes)
    counts = np.bincount(open_prepared(tmp_path / "folder").split("train").lengths)[1:]
    assert np.abs(counts - 500).max() < 4 * math.sqrt(4000 * 7 / 64)


def test_the_papers_sizes_are_the_defaults(tmp_path):
    prepare_formal_language(tmp_path / "folder", "marked-reversal")
    prepared = open_prepared(tmp_path / "folder")
    assert [prepared.header.splits[split].sequences for split in prepared.splits] == [10_000, 1_000, 3_000]
    assert prepared.header.extra["number_of_lengths"] == {"train": 20, "valid": 20, "test": 30}
    valid = prepared.split("valid")
    np.testing.assert_allclose(valid.log_probabilities, -(valid.lengths // 2) * math.log(2), rtol=1e-12)
    lengths = prepared.split("train").lengths
    assert (lengths.min(), lengths.max()) == (41, 79)


def test_a_rejection_leaves_nothing_on_disk(tmp_path):
    none = FormalLanguageSizes(train_lengths=(41, 41))
    with pytest.raises(UsageError, match=r"^dyck has no strings of the lengths 41 to 41"):
        prepare_formal_language(tmp_path / "folder", "dyck", sizes=none)
    with pytest.raises(UsageError, match="marked-reversal"):
        prepare_formal_language(tmp_path / "folder", "unknown")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_rejected(tmp_path):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(DataError, match="not empty"):
        prepare_formal_language(tmp_path, "dyck", sizes=SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"train": 0}, "train is 0"),
        ({"group_size": 0}, "group_size is 0"),
        ({"train_lengths": (9, 8)}, "train_lengths is 9 to 8"),
        ({"short": -1}, "short is -1"),
        ({"short_lengths": (3, 2)}, "short_lengths is 3 to 2"),
        ({"test_lengths": (-1, 8)}, "test_lengths is -1 to 8"),
    ],
)
def test_impossible_sizes_are_rejected(change, complaint):
    with pytest.raises(UsageError, match=complaint):
        FormalLanguageSizes(**change)


def test_the_only_string_of_a_length_has_probability_one(tmp_path, monkeypatch):
    """a^n b^n, whose log-probabilities given the length round to a little more than 0."""
    grammar = Grammar(
        "S", ("a", "b"), normalized([rule("S", "a S b", Fraction(7, 9)), rule("S", "a b", Fraction(2, 9))])
    )
    monkeypatch.setattr(registry, "GRAMMARS", {"counting": lambda: grammar})
    monkeypatch.setattr(registry, "FORMAL_LANGUAGES", {"counting": "a^n b^n"})
    sizes = FormalLanguageSizes(20, 20, 5, (2, 40), (2, 80), 1)
    prepare_formal_language(tmp_path / "data", "counting", sizes=sizes)
    prepared = open_prepared(tmp_path / "data")
    for split in ("valid", "test"):
        log_probabilities = prepared.split(split).log_probabilities
        assert (log_probabilities <= 0).all()
        np.testing.assert_allclose(log_probabilities, 0, atol=1e-12)
