"""Byte-pair encoding: the lecture's example, an independent definition, dropout and restrictions."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structattn.support.errors import UsageError
from structattn.support.special_tokens import UNK
from structattn.text.tokenization.byte_pair_encoding import MARKERS, MAX_PRETOKEN_LENGTH, BytePairEncoding
from structattn.text.tokenization.subword_tokenizer import build_subword_tokenizers
from structattn.text.tokenization.subword_training import train_bpe

pytest.importorskip("tokenizers", reason="the extra mt is not installed")

LECTURE = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
WORDS = st.dictionaries(st.text("abcde ", min_size=1, max_size=8), st.integers(1, 9), min_size=1, max_size=12)
# Letters of many scripts, marks, digits, emoji, markers of other tools, and what str.splitlines breaks on.
CHARACTERS = 'abzßäÉıжЯλΩאבعر๑กखि한글漢字かナ👍🏽\u0301\u200d\u00ad@#▁_</w>|\\"\r\x0b\x0c\x1c\x85\u2028\ufeff'
LINES = st.lists(st.text(CHARACTERS, min_size=1, max_size=9), max_size=7).map(" ".join)


def coded(lines, size=30, marker="end", threshold=0):
    """A tokenizer learned from lines."""
    units = Counter(unit for line in lines for unit in BytePairEncoding((), marker).pretokenize(line))
    return build_subword_tokenizers(train_bpe(units, size, marker), [units], threshold)[0]


def test_the_lectures_merges_in_order():
    assert train_bpe(LECTURE, 3, "none").merges == (("e", "s"), ("es", "t"), ("l", "o"))
    assert train_bpe(LECTURE, 4, "none").merges[3] == ("lo", "w")


def test_characters_of_words_that_did_not_fit_into_memory_give_no_merges():
    assert train_bpe(LECTURE | {"é": 0, "漢": 0}, 3, "none") == train_bpe(LECTURE, 3, "none")


@pytest.mark.parametrize(
    ("word", "pieces"),
    [("lowest", "lo w est"), ("newer", "n e w e r"), ("est", "est"), ("lolo", "lo lo"), ("sest", "s est")],
)
def test_the_lectures_merges_applied(word, pieces):
    assert train_bpe(LECTURE, 3, "none").segment(word) == pieces.split(" ")


def test_with_an_end_of_word_symbol_the_third_merge_is_another():
    units = {f"{word} ": count for word, count in LECTURE.items()}
    merged = train_bpe(units, 3, "end")
    assert ("l", "o") not in merged.merges
    assert merged.segment("widest ")[-1] == "est "


@settings(max_examples=60)
@given(WORDS, st.integers(0, 12))
def test_training_equals_the_definition(definition, words, count):
    assert list(train_bpe(words, count, "none").merges) == definition.learn(words, count)


@settings(max_examples=60)
@given(WORDS, st.text("abcdeé漢 ", max_size=20))
def test_segmentation_equals_the_definition(definition, words, unit):
    merged = train_bpe(words, 12, "none")
    assert merged.segment(unit) == definition.apply(list(merged.merges), unit)


@pytest.mark.parametrize(("text", "pieces"), [("aaa", "aa a"), ("aaaaa", "aa aa a"), ("baaab", "b aa a b")])
def test_a_pair_that_overlaps_itself_is_joined_from_the_left(text, pieces):
    assert BytePairEncoding((("a", "a"),), "none").segment(text) == pieces.split(" ")


@settings(max_examples=150)
@given(LINES, st.sampled_from(["end", "start", "continuation"]), st.integers(0, 40), st.integers(0, 3))
def test_lines_round_trip(line, marker, size, threshold):
    tokenizer = coded([line, CHARACTERS], size, marker, threshold)
    ids = tokenizer.encode(line)
    assert UNK not in ids
    assert tokenizer.decode(ids) == line


@settings(max_examples=40)
@given(LINES)
def test_without_a_marker_decoding_loses_only_the_spaces(line):
    tokenizer = coded([line], marker="none")
    assert tokenizer.decode(tokenizer.encode(line)) == line.replace(" ", "")


@settings(max_examples=60)
@given(LINES, st.sampled_from(["end", "start", "continuation"]), st.floats(0, 1), st.integers(0, 2**32))
def test_dropout_preserves_the_line_and_is_reproducible(line, marker, rate, seed):
    tokenizer = coded([line, CHARACTERS], marker=marker)
    ids = tokenizer.encode(line)
    first, second = (tokenizer.resegment(ids, rate, np.random.default_rng(seed)).tolist() for _ in range(2))
    assert first == second
    assert tokenizer.decode(first) == line
    assert UNK not in first


@settings(max_examples=60)
@given(WORDS, st.text("abcdeé漢 ", max_size=20))
def test_dropout_that_drops_nothing_is_segmentation(words, unit):
    merged = train_bpe(words, 12, "none")
    assert merged.segment(unit, iter([1.0] * 1000), 0.5) == merged.segment(unit)


def test_dropout_at_rates_0_and_1():
    tokenizer = coded(["lowest lower newest"], 50)
    ids = tokenizer.encode("lowest lower")
    assert tokenizer.resegment(ids, 0.0, np.random.default_rng(0)).tolist() == ids
    letters = tokenizer.resegment(ids, 1.0, np.random.default_rng(0))
    assert tokenizer.vocabulary.symbols_of(letters) == list("lowest lower ")


def test_each_possible_merge_is_dropped_with_the_rate():
    merged, draws = BytePairEncoding((("a", "b"),), "none"), iter(np.random.default_rng(1).random(10**6).tolist())
    joined = sum(merged.segment("ab", draws, 0.3) == ["ab"] for _ in range(20_000)) / 20_000
    assert abs(joined - 0.7) < 0.015  # more than four standard deviations
    # Both pairs of "abab" are drawn anew at each step: the word is done at the first step that leaves out all.
    whole = sum(merged.segment("abab", draws, 0.3) == ["ab", "ab"] for _ in range(20_000)) / 20_000
    assert abs(whole - (0.7**2 + 2 * 0.7 * 0.3 * 0.7)) < 0.015


def test_dropout_preserves_unk():
    tokenizer = coded(["ab ab"], 5)
    ids = tokenizer.encode("aqb ab")
    assert tokenizer.decode(ids) == "a<unk>b ab"
    again = tokenizer.resegment(ids, 0.5, np.random.default_rng(2)).tolist()
    assert tokenizer.decode(again) == "a<unk>b ab"


def test_dropout_without_a_marker_is_rejected():
    tokenizer = coded(["ab ab"], 5, "none")
    with pytest.raises(UsageError, match="needs a marker"):
        tokenizer.resegment([4], 0.5, np.random.default_rng(0))


def test_rare_pieces_are_split_by_undoing_their_merges():
    merged = train_bpe({**LECTURE, "estate": 1}, 6, "none")
    assert merged.segment("lowest") != ("est", "low")
    common = merged.restrict({"es", "lo"})
    assert common.segment("lowest") == ["lo", "w", "es", "t"]
    assert merged.restrict(()).segment("lowest") == list("lowest")


@pytest.mark.parametrize("marker", MARKERS)
def test_only_frequent_pieces_and_characters_are_used(marker):
    lines = ["the lowest of the low"] * 3 + ["the newest"] * 2 + ["widest"]
    free, tokenizer = coded(lines, 60, marker), coded(lines, 60, marker, threshold=3)
    counts = Counter(piece for line in lines for piece in free.vocabulary.symbols_of(free.encode(line)))
    seen = {piece for line in lines for piece in tokenizer.vocabulary.symbols_of(tokenizer.encode(line))}
    assert all(len(piece) == 1 or counts[piece] >= 3 for piece in seen)
    assert set(tokenizer.vocabulary.symbols[4:]) == {p for p in counts if counts[p] >= 3} | set("".join(counts))
    assert max(map(len, seen)) > 1
    assert all(tokenizer.decode(tokenizer.encode(line)) == free.decode(free.encode(line)) for line in lines)


def test_sides_apply_the_threshold_separately_to_one_vocabulary():
    units = Counter({"low ": 9, "lower ": 1}), Counter({"low ": 1, "lower ": 9})
    source, target = build_subword_tokenizers(train_bpe(units[0] + units[1], 20, "end"), units, 5)
    assert source.vocabulary is target.vocabulary
    assert source.vocabulary.symbols_of(source.encode("low")) == ["low "]
    assert target.vocabulary.symbols_of(target.encode("lower")) == ["lower "]
    assert "low " not in target.vocabulary.symbols_of(target.encode("low"))
    assert "lower " not in source.vocabulary.symbols_of(source.encode("lower"))


def test_names_of_special_symbols_are_ordinary_text():
    line = "<unk> <pad>x <bos> <eos></w> a@@ <unk>"
    for marker in ("end", "start", "continuation"):
        tokenizer = coded([line] * 5, 200, marker)
        ids = tokenizer.encode(line)
        assert min(ids) > UNK
        assert tokenizer.decode(ids) == line


def test_a_very_long_word_round_trips():
    word = "ab" * 50_000
    tokenizer = coded([word, "cd"], 40)
    assert len(BytePairEncoding(()).pretokenize(word)) == -(-len(word) // MAX_PRETOKEN_LENGTH)
    assert tokenizer.decode(tokenizer.encode(f"cd {word} cd")) == f"cd {word} cd"


def test_an_unknown_marker_is_rejected():
    with pytest.raises(ValueError, match="'@@' is not one of"):
        BytePairEncoding((), "@@")


def test_training_or_segmenting_without_the_library_is_rejected(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    for act in (lambda: train_bpe(LECTURE, 3), lambda: BytePairEncoding((("l", "o"),)).segment("low ")):
        with pytest.raises(UsageError, match=r"tokenizers, which is not installed .* pip install 'tokenizers>"):
            act()
