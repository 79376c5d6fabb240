"""SentencePiece: round trip, restricted vocabularies, and a missing library."""

import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structattn.support.errors import UsageError
from structattn.support.special_tokens import UNK
from structattn.text.tokenization.subword_files import SentencePieceModel, disable_pieces
from structattn.text.tokenization.subword_tokenizer import build_subword_tokenizers
from structattn.text.tokenization.subword_training import train_sentencepiece

pytest.importorskip("sentencepiece", reason="the extra mt is not installed")

LINES = [
    "the lowest of the low",
    "a newer lower tower",
    "the widest river",
    "größer als жук 漢字 한글",
    "e\u0301 <unk>",
]


def coded(algorithm, threshold=0, lines=LINES, size=60):
    units = Counter(unit for line in lines for unit in SentencePieceModel(b"").pretokenize(line))
    return build_subword_tokenizers(train_sentencepiece(units, size, algorithm), [units], threshold)[0]


@pytest.mark.parametrize("threshold", [0, 2])
@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_lines_round_trip(algorithm, threshold):
    tokenizer = coded(algorithm, threshold)
    alphabet = sorted({character for line in LINES for character in line})

    @settings(max_examples=60)
    @given(st.lists(st.text([c for c in alphabet if c != " "], min_size=1, max_size=8), max_size=6).map(" ".join))
    def check(line):
        ids = tokenizer.encode(line)
        assert UNK not in ids
        assert tokenizer.decode(ids) == line

    check()


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_only_frequent_pieces_and_characters_are_used(algorithm):
    free, tokenizer = coded(algorithm), coded(algorithm, 2)
    counts = Counter(piece for line in LINES for piece in free.vocabulary.symbols_of(free.encode(line)))
    seen = {piece for line in LINES for piece in tokenizer.vocabulary.symbols_of(tokenizer.encode(line))}
    assert all(len(piece) == 1 or counts[piece] >= 2 for piece in seen)
    assert any(len(piece) > 1 for piece in seen)
    assert tokenizer.vocabulary.size < free.vocabulary.size


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_training_twice_gives_the_same_bytes(algorithm):
    first, second = (coded(algorithm).model.model for _ in range(2))
    assert first == second


def test_keeping_all_changes_nothing():
    tokenizer = coded("unigram")
    assert disable_pieces(tokenizer.model.model, set(tokenizer.model.pieces)) == tokenizer.model.model


def test_a_disabled_piece_of_bpe_is_split_by_undoing_its_merge():
    learnt = train_sentencepiece({"low": 9, "lot": 5, "lo": 3}, 40, "bpe")
    assert learnt.segment("low") == ["▁low"]
    kept = set(learnt.pieces) - {"▁low"}
    assert learnt.restrict(kept).segment("low") == ["▁lo", "w"]
    assert learnt.restrict(()).segment("low") == ["▁", "l", "o", "w"]


@pytest.mark.parametrize("damaged", [b"\x0a", b"\x0a\x05ab", b"\x08\x01", b"\x0a\x80"])
def test_a_damaged_model_is_rejected(damaged):
    with pytest.raises(ValueError, match="byte"):
        disable_pieces(damaged, set())


def test_an_unknown_character_is_unknown():
    tokenizer = coded("bpe")
    assert tokenizer.decode(tokenizer.encode("the ☃ low")) == "the <unk> low"


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_the_mark_of_a_space_and_its_escapes_round_trip(algorithm):
    lines = [*LINES, "the▁low ▁ ▁▁er", "\ue000 \ue001 \ue001\ue000▁\ue000\ue001\ue001"]
    tokenizer = coded(algorithm, lines=lines)
    for line in [*lines, "▁▁the \ue001▁ \ue001\ue001\ue000"]:
        ids = tokenizer.encode(line)
        assert UNK not in ids
        assert tokenizer.decode(ids) == line


def test_an_unknown_mark_of_a_space_is_not_a_space():
    assert coded("bpe").decode(coded("bpe").encode("the▁low")) == "the<unk>low"


def test_dropout_is_rejected():
    with pytest.raises(UsageError, match="needs level bpe"):
        coded("bpe").resegment([4, 5], 0.1, np.random.default_rng(0))


def test_an_impossible_size_is_rejected():
    with pytest.raises(UsageError, match="cannot learn 3 pieces"):
        coded("unigram", size=3)


def test_a_missing_library_is_reported(monkeypatch):
    model = coded("bpe").model.model
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    for act in (lambda: coded("bpe"), lambda: SentencePieceModel(model).segment("low")):
        with pytest.raises(UsageError, match=r"pip install .*'sentencepiece>"):
            act()


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_characters_of_words_that_did_not_fit_into_memory_are_pieces(algorithm):
    model = train_sentencepiece({"▁low": 9, "▁lot": 5, "é": 0}, 12, algorithm)
    assert model.segment("▁loé")[-1] == "é"
