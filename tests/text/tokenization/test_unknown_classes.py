"""Classes of unknown words, and vocabularies with them."""

from itertools import count
from pathlib import Path

import pytest

from structattn.support.errors import UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.lines import warn_of_unknown_tokens
from structattn.text.tokenization.vocabulary import is_unknown_class, unknown_class


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("walking", "UNK-LC-ing"), ("walked", "UNK-LC-ed"), ("dogs", "UNK-LC-s"), ("Dogs", "UNK-INITC-s"),
        ("NATO", "UNK-CAPS"), ("USS", "UNK-CAPS"), ("A", "UNK-CAPS"), ("boss", "UNK-LC"), ("is", "UNK-LC"),
        ("as", "UNK-LC"), ("bus", "UNK-LC"), ("1990", "UNK-NUM"), ("1990s", "UNK-LC-NUM-s"),
        ("3-D", "UNK-CAPS-NUM-DASH"),
        ("Basel-2", "UNK-INITC-NUM-DASH"), ("re-used", "UNK-LC-DASH"), ("%", "UNK"), ("--", "UNK-DASH"),
        ("city", "UNK-LC"), ("gravity", "UNK-LC-ity"), ("happy", "UNK-LC-y"), ("nation", "UNK-LC-ion"),
        ("McDonald", "UNK-INITC"), ("iPhone", "UNK-LC"), ("größer", "UNK-LC-er"), ("漢字", "UNK"),
        ("final", "UNK-LC-al"),
    ],
)  # fmt: skip
def test_classes(word, expected):
    assert unknown_class(word) == expected
    assert is_unknown_class(expected)
    assert not is_unknown_class(word)


def prepare(folder, train, valid, **options):
    (folder / "train").write_text(train)
    (folder / "valid").write_text(valid)
    settings = TextSettings(unknown_classes=True, **options)
    prepare_language_modeling(folder / "data", folder / "train", folder / "valid", settings=settings)
    return open_prepared(folder / "data")


def texts(prepared, split):
    sequences = prepared.split(split)
    return [prepared.tokenizer.decode(sequences[index]) for index in range(len(sequences))]


def test_words_seen_once_become_classes(tmp_path):
    prepared = prepare(tmp_path, "the dog the dog\nthe cat walking\n", "a dog jumping\n")
    assert texts(prepared, "train") == ["the dog the dog", "the UNK-LC UNK-LC-ing"]
    assert texts(prepared, "valid") == ["UNK-LC dog UNK-LC-ing"]
    assert not prepared.vocabulary.has_unknown  # every class of valid occurs in train
    assert prepared.header.extra["unknown_tokens"] == {"train": 2, "valid": 2}
    assert prepared.tokenizer.encode("eating dog") == prepared.tokenizer.encode("UNK-LC-ing dog")


def test_classes_that_are_not_in_train_are_unk(tmp_path):
    prepared = prepare(tmp_path, "the the cat\n", "NATO cat\n")
    assert texts(prepared, "valid") == ["<unk> UNK-LC"]
    assert prepared.header.extra["unknown_tokens"] == {"train": 1, "valid": 2}


def test_min_count_and_level(tmp_path):
    prepared = prepare(tmp_path, "a a a b b\n", "a\n", min_count=3)
    assert texts(prepared, "train") == ["a a a UNK-LC UNK-LC"]
    with pytest.raises(UsageError, match="apply to level word"):
        TextSettings("character", unknown_classes=True)


@pytest.mark.parametrize("lowercase", [False, True])
def test_words_that_become_classes_are_warned_of(tmp_path, caplog, lowercase):
    """With lower case, the name of a class is an unknown word, too."""
    tokenizer = prepare(tmp_path, "the the x-y\n", "the\n", lowercase=lowercase).tokenizer
    texts = ["the the", "the a-b", "the UNK-LC-DASH"]
    caplog.clear()
    warn_of_unknown_tokens(tokenizer, texts, [tokenizer.encode(text) for text in texts], Path("x"), count(1))
    read_as = "are not in the vocabulary and are read as <unk> or classes of unknown words"
    assert caplog.messages == [f"x: {1 + lowercase} of 6 tokens {read_as}, the first in line 2"]
