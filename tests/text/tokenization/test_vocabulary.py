"""Vocabularies: special ids, refusals, and the file format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.support.errors import DataError, UsageError
from structattn.support.special_tokens import BOS, EOS, PAD, UNK
from structattn.text.tokenization.vocabulary import Vocabulary, tokenizer_digest

SYMBOLS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True)


def test_special_symbols_come_first():
    assert Vocabulary.from_symbols(["a"]).symbols == ("<pad>", "<bos>", "<eos>", "a")
    assert Vocabulary.from_symbols(["a"], unknown=True).symbols == ("<pad>", "<bos>", "<eos>", "<unk>", "a")
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


def test_ids_are_positions():
    vocabulary = Vocabulary.from_symbols("xyz", unknown=True)
    assert [vocabulary.id_of[symbol] for symbol in vocabulary.symbols] == list(range(vocabulary.size)) == list(range(7))
    assert vocabulary.has_unknown
    assert not Vocabulary.from_symbols("xyz").has_unknown
    assert not Vocabulary.from_symbols("").has_unknown


@pytest.mark.parametrize(
    ("symbols", "reason"),
    [
        (("a", "b"), "begins with"),
        (("<pad>", "<eos>", "<bos>"), "begins with"),
        (("<pad>", "<bos>", "<eos>", "a", "b", "a"), "'a' occurs twice"),
        (("<pad>", "<bos>", "<eos>", "<eos>"), "'<eos>' occurs twice"),
        (("<pad>", "<bos>", "<eos>", "a", "<unk>"), "<unk> may only have id 3, not 4"),
        (("<pad>", "<bos>", "<eos>", "a", ""), "symbol 4 is empty"),
    ],
)
def test_invalid_vocabularies_are_rejected(symbols, reason):
    with pytest.raises(ValueError, match=reason):
        Vocabulary(symbols)


@given(SYMBOLS, st.booleans())
def test_text_round_trip(symbols, unknown):
    symbols = [symbol for symbol in symbols if not symbol.startswith("<")]
    vocabulary = Vocabulary.from_symbols(symbols, unknown)
    assert Vocabulary.from_text(vocabulary.to_text()) == vocabulary


def test_file_round_trip_with_every_awkward_character(tmp_path):
    vocabulary = Vocabulary.from_symbols(
        ["\n", "\r", "\\", "\\n", "\u2028", "\u0085", "\ufeff", " ", "\t", "\x0b", "\x1c", "é"]
    )
    path = tmp_path / "vocabulary.txt"
    vocabulary.save(path)
    assert path.read_bytes().count(b"\n") == vocabulary.size  # one line each
    assert Vocabulary.load(path) == vocabulary


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<pad>\n<bos>\n<eos>\na", "truncated"),
        (b"<pad>\n<bos>\n<eos>\na\\b\n", "line 4"),
        (b"<pad>\n<bos>\n<eos>\n\xff\n", "not a vocabulary"),
        (b"", "begins with"),
    ],
)
def test_a_damaged_file_is_rejected(tmp_path, content, reason):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        Vocabulary.load(path)


def test_what_would_take_gigabytes_is_neither_read_nor_written(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(b"<pad>\n<bos>\n<eos>\n" + b"a\n" * 4_000_000)
    with pytest.raises(DataError, match="4000003 symbols; expected at most 4000000"):
        Vocabulary.load(path)
    path.write_bytes(b"<pad>\n<bos>\n<eos>\n" + b"a" * (1 << 26))
    with pytest.raises(DataError, match="has 67108882 bytes; expected at most 67108864"):
        Vocabulary.load(path)
    with pytest.raises(UsageError, match="min_count or max_symbols leave some out"):
        Vocabulary.from_symbols(["a" * (1 << 26)]).save(tmp_path / "other.txt")


def test_a_missing_file_is_rejected(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        Vocabulary.load(tmp_path / "none.txt")


def test_digest_depends_on_level_and_vocabulary_alone():
    digest = tokenizer_digest("word", Vocabulary.from_symbols("ab"))
    assert digest == tokenizer_digest("word", Vocabulary.from_symbols("ab"))
    others = [
        ("character", Vocabulary.from_symbols("ab")),
        ("word", Vocabulary.from_symbols("ba")),
        ("word", Vocabulary.from_symbols("ab", True)),
    ]
    assert len({digest, *(tokenizer_digest(*other) for other in others)}) == 4
