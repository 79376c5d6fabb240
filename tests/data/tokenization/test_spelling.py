"""Words as characters: numbers and back, and each different word of a batch once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from structattn.data.batching.spelled_words import spelling_table, spelt
from structattn.data.tokenization.spelling import speller_of
from structattn.data.tokenization.vocabulary import Vocabulary

SPELLER = speller_of({"abba": 2, "cb": 1, "d": 0})


def test_characters_are_numbered_by_how_often_they_occur():
    assert SPELLER.characters == Vocabulary.of("bacd", unknown=True)


@given(st.text("abcd", min_size=1))
def test_a_word_is_spelt_and_read_again(word):
    ids = SPELLER.spell(word)
    assert (ids[0], ids[-1]) == (1, 2)
    assert SPELLER.word(ids) == word


def test_what_is_no_word_is_read_to_its_256th_character():
    assert spelling_table(SPELLER, ["a" * 9999, "b"]).shape == (2, 258)
    assert SPELLER.spell("a" * 9999) == SPELLER.spell("a" * 256)


def test_new_characters_are_unknown():
    assert SPELLER.spell("aéb") == [1, 5, 3, 4, 2]


def test_a_table_of_spellings_has_pads():
    assert spelling_table(SPELLER, ["a", "bc"]).tolist() == [[1, 5, 2, 0], [1, 4, 6, 2]]
    assert spelling_table(SPELLER, []).shape == (0, 2)


def test_each_different_word_of_a_batch_is_spelt_once():
    found = spelt([[(0, "cb"), (3, "a")], [], [(1, "cb")]], 4, SPELLER.spell)
    assert found.which.tolist() == [[1, 0, 0, 2], [0] * 4, [0, 1, 0, 0]]
    assert torch.equal(found.spellings, spelling_table(SPELLER, ["cb", "a"]))
    assert SPELLER.digest != speller_of({"ab": 1}).digest
