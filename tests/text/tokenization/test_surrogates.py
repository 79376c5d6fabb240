"""Halves of surrogate pairs, which no UTF-8 text has, are refused alike at all levels."""

import json

import pytest

from structattn.support.errors import DataError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.minimal_pairs.data import read_minimal_pairs
from structattn.text.folders.prepared import open_prepared
from structattn.text.reading import Notices
from structattn.text.tokenization.tokenizers import TextError, build_tokenizer

LEVELS = ["word", "character", "byte", "bpe", "sentencepiece-bpe", "sentencepiece-unigram"]


@pytest.mark.parametrize("unknown", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_refuses_them_with_their_place(tmp_path, level, unknown):
    (tmp_path / "text").write_text("the lower tower é\na newer river\n" * 4)
    (tmp_path / "other").write_text("unseen ж\n" if unknown else "the lower tower\n")
    settings = TextSettings(level, vocabulary_size=40)
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "other", settings=settings)
    tokenizer = open_prepared(tmp_path / "data").tokenizer
    for text, place, column in (("\ud800", 1, 1), ("é \udc80", 3, 4), ("the\udfffé", 4, 4)):
        with pytest.raises(TextError, match=f"character {place} is U[+]D.*, half of a surrogate pair") as refused:
            tokenizer.encode(text)
        assert refused.value.column == column


def test_a_pretrained_tokenizer_refuses_them(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    (tmp_path / "text").write_text("a b\n")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.save(str(tmp_path / "tokenizer.json"))
    settings = TextSettings("pretrained", tokenizer=str(tmp_path))
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=settings)
    with pytest.raises(TextError, match=r"character 3 is U[+]D800, half of a surrogate pair"):
        open_prepared(tmp_path / "data").tokenizer.encode("a \ud800")


def test_a_vocabulary_is_not_made_of_them():
    with pytest.raises(TextError, match="half of a surrogate pair"):
        build_tokenizer("word", ["a \ud800"])


def test_json_may_hold_them_and_is_refused_by_line(tmp_path):
    pair = {"sentence_good": "a \ud800", "sentence_bad": "b", "UID": "u", "linguistics_term": "t", "field": "f"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    with pytest.raises(DataError, match=r"pairs.jsonl:1: sentence_good: .* unicode string"):
        read_minimal_pairs(tmp_path / "pairs.jsonl", Notices())
