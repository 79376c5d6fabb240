"""Character sequences of words, and tensors of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from structattn.text.batching.corruption import character_table, unknown_words
from structattn.text.tokenization.vocabulary import Vocabulary, WordCharacterTokenizer

TOKENIZER = WordCharacterTokenizer.from_counts({"abba": 2, "cb": 1, "d": 0})


def test_characters_are_ordered_by_count():
    assert TOKENIZER.vocabulary == Vocabulary.from_symbols("bacd", unknown=True)


@given(st.text("abcd", min_size=1))
def test_decoding_inverts_encoding(word):
    ids = TOKENIZER.encode(word)
    assert (ids[0], ids[-1]) == (1, 2)
    assert TOKENIZER.decode(ids) == word


def test_long_words_are_truncated_to_256_characters():
    assert character_table(TOKENIZER, ["a" * 9999, "b"]).shape == (2, 258)
    assert TOKENIZER.encode("a" * 9999) == TOKENIZER.encode("a" * 256)


def test_new_characters_are_unknown():
    assert TOKENIZER.encode("aéb") == [1, 5, 3, 4, 2]


def test_a_character_table_is_padded():
    assert character_table(TOKENIZER, ["a", "bc"]).tolist() == [[1, 5, 2, 0], [1, 4, 6, 2]]
    assert character_table(TOKENIZER, []).shape == (0, 2)


def test_each_distinct_word_of_a_batch_is_encoded_once():
    found = unknown_words([[(0, "cb"), (3, "a")], [], [(1, "cb")]], 4, TOKENIZER.encode)
    assert found.index.tolist() == [[1, 0, 0, 2], [0] * 4, [0, 1, 0, 0]]
    assert torch.equal(found.characters, character_table(TOKENIZER, ["cb", "a"]))


def test_the_digest_depends_on_the_vocabulary():
    assert TOKENIZER.digest != WordCharacterTokenizer.from_counts({"ab": 1}).digest
