"""Tokenizers of words, characters and bytes: separators, ``<unk>`` and control symbols."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.text.tokenization.tokenizers import BYTE_SYMBOLS, LEVELS, SymbolTokenizer, TextError, build_tokenizer
from structattn.text.tokenization.vocabulary import Vocabulary, tokenizer_digest

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"))


def test_words_are_separated_by_spaces_and_tabs():
    tokenizer = build_tokenizer("word", [" the  dog\tbarks "])
    assert sorted(tokenizer.vocabulary.symbols[3:]) == ["barks", "dog", "the"]
    assert tokenizer.decode(tokenizer.encode("\tthe dog  ")) == "the dog"


@pytest.mark.parametrize("character", ["\u00a0", "\u0085", "\u2028", "\u3000", "\x0b", "\x1c", "\r", "\ufeff"])
def test_no_other_character_separates_words(character):
    word = f"a{character}b"
    tokenizer = build_tokenizer("word", [f"{word} {character}"])
    assert set(tokenizer.vocabulary.symbols[3:]) == {word, character}


def test_symbols_are_ordered_by_count_then_code_point():
    assert build_tokenizer("word", ["b c a c", "b c d"]).vocabulary.symbols[3:] == ("c", "b", "a", "d")


def test_characters_are_code_points_including_spaces():
    tokenizer = build_tokenizer("character", ["ab a\u0301"])
    assert tokenizer.decode(tokenizer.encode("a b\u0301")) == "a b\u0301"
    assert len(tokenizer.encode("a b\u0301")) == 4


@pytest.mark.parametrize("level", LEVELS)
@given(line=LINES)
def test_a_line_round_trips(level, line):
    if any(control in line for control in ("<pad>", "<bos>", "<eos>", "<unk>")):
        return
    tokenizer = build_tokenizer(level, [line])
    ids = tokenizer.encode(line)
    assert all(3 <= number < tokenizer.vocabulary.size for number in ids)
    assert not tokenizer.vocabulary.has_unknown
    expected = " ".join(line.replace("\t", " ").split(" ")).split(" ") if level == "word" else line
    assert tokenizer.decode(ids) == (" ".join(word for word in expected if word) if level == "word" else line)


def test_bytes_have_a_fixed_vocabulary():
    tokenizer = build_tokenizer("byte", [])
    assert tokenizer == build_tokenizer("byte", ["anything"])
    assert tokenizer.vocabulary.size == 259
    assert tokenizer.encode("aé\u2028") == [byte + 3 for byte in "aé\u2028".encode()]
    assert BYTE_SYMBOLS[ord("a")] == "a"
    assert BYTE_SYMBOLS[0xE9] == "<0xE9>"


def test_bytes_never_make_two_lines_of_one():
    tokenizer = build_tokenizer("byte", [])
    assert tokenizer.decode([byte + 3 for byte in b"a\nb"]) == "a\N{REPLACEMENT CHARACTER}b"


def test_bytes_that_are_not_utf8_become_replacement_characters():
    tokenizer = build_tokenizer("byte", [])
    assert tokenizer.decode([ord("a") + 3, 0xC3 + 3, ord("b") + 3]) == "a\ufffdb"


@pytest.mark.parametrize("level", ["character", "byte"])
def test_names_of_special_symbols_are_ordinary_characters_and_bytes(level):
    line = "<eos><unk> <pad>"
    tokenizer = build_tokenizer(level, [line])
    ids = tokenizer.encode(line)
    assert min(ids) >= 3
    assert len(ids) == len(line)
    assert tokenizer.decode(ids) == line


@pytest.mark.parametrize("control", ["<pad>", "<bos>", "<eos>"])
def test_the_name_of_a_control_symbol_is_rejected(control):
    with pytest.raises(TextError, match=control) as caught:
        build_tokenizer("word", ["ä  b", f"ä  {control} b {control}"])
    assert caught.value.column == 5  # ä takes two bytes
    with pytest.raises(TextError, match=control):
        build_tokenizer("word", ["a"], held_out=[control])
    with pytest.raises(TextError, match=control):
        build_tokenizer("word", ["a <unk>"]).encode(f"a {control}")


def test_parts_of_words_may_look_like_control_symbols():
    tokenizer = build_tokenizer("word", ["<eos>. x<pad> <EOS>"])
    assert tokenizer.decode(tokenizer.encode("x<pad> <eos>.")) == "x<pad> <eos>."


def test_unk_exists_only_if_needed():
    assert not build_tokenizer("word", ["a b"], held_out=["b a"]).vocabulary.has_unknown
    assert build_tokenizer("word", ["a b"], held_out=["c"]).vocabulary.has_unknown
    assert build_tokenizer("word", ["a a b"], min_count=2).vocabulary.symbols[3:] == ("<unk>", "a")
    assert build_tokenizer("word", ["a a b b c"], max_symbols=2).vocabulary.symbols[3:] == ("<unk>", "a", "b")
    assert not build_tokenizer("word", ["a a b b"], min_count=2, max_symbols=2).vocabulary.has_unknown
    assert not build_tokenizer("byte", ["a"], held_out=["é"]).vocabulary.has_unknown
    assert build_tokenizer("character", ["a"], held_out=["é"]).encode("éa") == [3, 4]


def test_the_word_unk_is_the_unknown_symbol():
    tokenizer = build_tokenizer("word", ["<unk> <unk> a"])
    assert tokenizer.vocabulary.symbols[3:] == ("<unk>", "a")
    assert tokenizer.encode("a <unk> never-seen") == [4, 3, 3]
    assert build_tokenizer("word", ["a"], held_out=["<unk>"]).vocabulary.has_unknown


def test_without_unknown_a_new_symbol_is_rejected_with_its_column():
    with pytest.raises(TextError, match="'c' is not in the vocabulary") as caught:
        build_tokenizer("word", ["ä b"]).encode("ä b  c d")
    assert caught.value.column == 7
    with pytest.raises(TextError, match="<unk>"):
        build_tokenizer("word", ["a"]).encode("<unk>")


def test_spaces_between_characters_are_refused_with_the_way_to_write_them():
    with pytest.raises(TextError, match=r"' ' is not in the vocabulary.*; its symbols are characters, written without"):
        build_tokenizer("character", ["()"]).encode("( )")


def test_control_symbols_are_left_out_of_text():
    tokenizer = build_tokenizer("word", ["a a b"])
    assert tokenizer.decode([1, 3, 4, 2, 0, 0]) == "a b"


@pytest.mark.parametrize("number", [-1, 5])
def test_ids_outside_the_vocabulary_are_rejected(number):
    with pytest.raises(ValueError, match=f"id {number} is outside the vocabulary of 5 symbols"):
        build_tokenizer("word", ["a b"]).decode([3, number])


def test_an_unknown_level_is_rejected():
    with pytest.raises(ValueError, match=r"'words' is not one of \['byte', 'character', 'word'\]"):
        SymbolTokenizer("words", Vocabulary.from_symbols("a"))


def test_digest():
    tokenizer = build_tokenizer("word", ["a b"])
    assert tokenizer.digest == tokenizer_digest("word", tokenizer.vocabulary)
