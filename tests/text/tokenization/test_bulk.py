"""Splitting, segmenting and encoding many lines at once gives what the definitions give line by line."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.text.lines import Normalization
from structattn.text.tokenization import encoding, splitting
from structattn.text.tokenization.byte_pair_encoding import MARKERS
from structattn.text.tokenization.encoding import BulkEncoder
from structattn.text.tokenization.splitting import split_text, text_size
from structattn.text.tokenization.subword_tokenizer import build_subword_tokenizers
from structattn.text.tokenization.subword_training import pretokenizer, train_subword_model
from structattn.text.tokenization.tokenizers import LEVELS, SymbolTokenizer, choose_vocabulary

LINES = st.lists(st.text(st.sampled_from("ab \t\r\v\x85éß漢😀\u2028Σ\u0301ﬁ▁"), max_size=12), max_size=8)
LEARNED = ["low", "lower", "lowest", "newer", "newest", "wider", "größte", "漢字漢字", "e\u0301a", "▁low"]
LEARNED += ["</w>", "<unk>", "<0x0A>"]
SEEN_LATER = [*LEARNED, "lo", "Xé", "q", "漢", "lowlowestest", "x" * 600, "<eos>"]


def joined(lines):
    return "".join(line + "\n" for line in lines)


def by_line(split):
    ends = np.cumsum(split.lengths).tolist()
    symbols = [split.symbols[index] for index in split.indices]
    return [symbols[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("level", LEVELS)
@given(lines=LINES)
def test_lines_are_split_as_one_by_one(level, lines):
    split = split_text(level, joined(lines))
    assert by_line(split) == [LEVELS[level].split(line) for line in lines]
    counted = zip(split.symbols, split.counts().tolist(), strict=True)
    assert {symbol: count for symbol, count in counted if count} == Counter(
        symbol for line in lines for symbol in LEVELS[level].split(line)
    )


@given(lines=LINES)
def test_text_size(lines):
    size = text_size(joined(lines))
    assert size.words == sum(len(LEVELS["word"].split(line)) for line in lines)
    assert (size.characters, size.bytes) == (sum(map(len, lines)), sum(len(line.encode()) for line in lines))


@given(lines=LINES, nfkc=st.booleans(), lowercase=st.booleans())
def test_lines_are_normalized_as_one_by_one(lines, nfkc, lowercase):
    normalization = Normalization(nfkc, lowercase)
    together = normalization.characters(joined(lines)).split("\n")[:-1]
    assert [normalization(line) for line in together] == [normalization(line) for line in lines]
    assert together == [normalization.characters(line) for line in lines]


@pytest.mark.parametrize("level", LEVELS)
def test_symbols_are_encoded_as_by_the_tokenizer(level):
    known, lines = ["b a é a", "a\té\x85"], ["a é", "", "b 漢 <unk> a", "\u2028"]
    counts = Counter(symbol for line in known for symbol in LEVELS[level].split(line))
    tokenizer = SymbolTokenizer(level, choose_vocabulary(level, counts, min_count=2 - (level == "byte")))
    encoded = BulkEncoder(tokenizer)(split_text(level, joined(lines)))
    assert encoded.tokens.tolist() == [token for line in lines for token in tokenizer.encode(line)]
    assert encoded.lengths.tolist() == [len(tokenizer.encode(line)) for line in lines]


@pytest.mark.parametrize("min_count", [1, 20])
@pytest.mark.parametrize(
    ("level", "marker"),
    [*(("bpe", each) for each in MARKERS), ("sentencepiece-bpe", ""), ("sentencepiece-unigram", "")],
)
def test_subwords_are_encoded_as_by_the_tokenizer(level, marker, min_count):
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    pytest.importorskip("sentencepiece", reason="the extra mt is not installed")
    counts = Counter[str]()
    for number, word in enumerate(LEARNED):
        counts.update(dict.fromkeys(pretokenizer(level, marker)(word), 5 + number))
    model = train_subword_model(level, counts, 60, marker)
    (tokenizer,) = build_subword_tokenizers(model, [counts], min_count)
    lines = ["", "low newest", " ".join(SEEN_LATER), *SEEN_LATER, "größte größte q"]
    encoder = BulkEncoder(tokenizer)
    for text in (lines[:2], lines):  # the second time some words are remembered
        encoded = encoder(split_text("word", joined(text)))
        assert encoded.tokens.tolist() == [token for line in text for token in tokenizer.encode(line)]
        assert encoded.lengths.tolist() == [len(tokenizer.encode(line)) for line in text]


def test_remembered_words_are_bounded(monkeypatch):
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    monkeypatch.setattr("structattn.text.tokenization.encoding._MAX_REMEMBERED", 3)
    counts = Counter(pretokenizer("bpe")("low lower newest"))
    (tokenizer,) = build_subword_tokenizers(train_subword_model("bpe", counts, 5), [counts])
    encoder = BulkEncoder(tokenizer)
    for line in ("low lower", "newest low lower", "low wide", "a b c d e"):
        assert encoder(split_text("word", line + "\n")).tokens.tolist() == tokenizer.encode(line)
    assert len(encoder._remembered) == 3


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("level", LEVELS)
def test_the_blocks_of_a_long_text_do_not_show(monkeypatch, level, size):
    lines = ["", "ab  c", "\t", "é漢 \U0001f600d", "a", "", " x\u00a0y", "abcdefghij klm", "", ""]
    text = "".join(line + "\n" for line in lines)
    whole, whole_size = split_text(level, text), text_size(text)
    monkeypatch.setattr(splitting, "_BLOCK", size)
    monkeypatch.setattr(encoding, "_SYMBOLS_AT_ONCE", size)
    split = split_text(level, text)
    assert by_line(split) == by_line(whole) == [LEVELS[level].split(line) for line in lines]
    assert (split.indices.dtype, text_size(text)) == (whole.indices.dtype, whole_size)
    ids = [[index + 3] * (index % 3) for index in range(len(split.symbols))]
    ragged = encoding._encode_ragged(ids, split)
    expected = [[token for symbol in line for token in ids[split.symbols.index(symbol)]] for line in by_line(split)]
    assert ragged.tokens.tolist() == [token for line in expected for token in line]
    assert ragged.lengths.tolist() == [len(line) for line in expected]
