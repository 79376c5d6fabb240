"""A token belongs to the part in which its first character other than a space lies."""

import pytest

from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.tokenization.byte_pair_encoding import BytePairEncoding
from structattn.text.tokenization.splitting import parts_of_tokens
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.tokenizers import SymbolTokenizer
from structattn.text.tokenization.vocabulary import Vocabulary

LINE = "der Bär schläft nicht"


def tokenizer_of(folder, **options):
    (folder / "text").write_text("der Bär schläft nicht\n" * 3)
    prepare_language_modeling(
        folder / "data", folder / "text", folder / "text", settings=TextSettings(mode="sentences", **options)
    )
    return open_prepared(folder / "data").tokenizer


@pytest.mark.parametrize(
    "options",
    [
        {"level": "word"},
        {"level": "character"},
        {"level": "byte"},
        {"level": "bpe", "vocabulary_size": 25, "marker": "end"},
        {"level": "bpe", "vocabulary_size": 25, "marker": "start"},
        {"level": "sentencepiece-bpe", "vocabulary_size": 30},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_words_of_a_line(tmp_path, options):
    tokenizer = tokenizer_of(tmp_path, **options)
    ids = tokenizer.encode(LINE)
    words = parts_of_tokens(tokenizer, ids, LINE.split())
    assert words == sorted(words)
    for index, word in enumerate(LINE.split()):
        chosen = [token for token, of in zip(ids, words, strict=True) if of == index]
        assert tokenizer.decode(chosen).strip() == word


def test_a_space_alone_counts_for_what_follows(tmp_path):
    tokenizer = tokenizer_of(tmp_path, level="character")
    assert parts_of_tokens(tokenizer, tokenizer.encode("der Bär"), ["der", "", "B", "är"]) == [0, 0, 0, 2, 2, 3, 3]


def test_other_spaces_of_unicode_are_characters():
    tokenizer = SymbolTokenizer("word", Vocabulary.from_symbols(["a", "b", "\u00a0", "1\u00a0000"]))
    line = "a \u00a0 b 1\u00a0000"
    assert parts_of_tokens(tokenizer, tokenizer.encode(line), line.split(" ")) == [0, 1, 2, 3]


def test_spaces_alone_have_no_part(tmp_path):
    tokenizer = tokenizer_of(tmp_path, level="character")
    assert parts_of_tokens(tokenizer, tokenizer.encode("  "), []) == [-1, -1]
    assert parts_of_tokens(tokenizer, tokenizer.encode("  "), ["", ""]) == [1, 1]


def test_the_bytes_of_a_character_stay_together(tmp_path):
    tokenizer = tokenizer_of(tmp_path, level="byte")
    assert parts_of_tokens(tokenizer, tokenizer.encode("Bär"), ["Bä", "r"]) == [0, 0, 0, 1]


def test_bytes_that_are_no_text_are_characters(tmp_path):
    """As a model of bytes may generate them."""
    tokenizer = tokenizer_of(tmp_path, level="byte")
    ids = [3 + byte for byte in b"a\xff\xff b\xc3"]
    assert parts_of_tokens(tokenizer, ids, tokenizer.decode(ids).split()) == [0, 0, 0, 1, 1, 1]


def test_a_token_across_a_boundary_counts_where_it_begins():
    model = BytePairEncoding((("d", "o"), ("g", "."), ("g.", " ")), "end")
    tokenizer = SubwordTokenizer(
        model, Vocabulary.from_symbols(["do", "g. ", "a", " ", "d", "o", "g", "."], unknown=True)
    )
    ids = tokenizer.encode("a dog.")
    assert [tokenizer.vocabulary.symbols[token] for token in ids] == ["a", " ", "do", "g. "]
    assert parts_of_tokens(tokenizer, ids, ["a", "dog", "."]) == [0, 1, 1, 1]
    assert parts_of_tokens(tokenizer, ids, ["a", "do", "g", "."]) == [0, 1, 1, 2]


def test_other_text_is_refused(tmp_path):
    tokenizer = tokenizer_of(tmp_path, level="word")
    ids = tokenizer.encode("der Bär")
    with pytest.raises(ValueError, match=r"'der Bär' does not consist of \['der'\]"):
        parts_of_tokens(tokenizer, ids, ["der"])
    assert parts_of_tokens(tokenizer, [], []) == []
