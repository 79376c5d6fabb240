"""Words are encoded as within a line, whatever the tokenizer."""

import random

import pytest

from structattn.text.folders.text_tokenizer import TextTokenizer, word_ids
from structattn.text.lines import Normalization
from structattn.text.tokenization.pretrained_tokenizer import PretrainedTokenizer
from structattn.text.tokenization.tokenizers import build_tokenizer

WORDS = ["low", "lower", "lowest", "new", "newer", "(", "ünder", "½"]
LINES = [" ".join(random.Random(n).choices(WORDS, k=6)) for n in range(40)]


def byte_level():
    """A byte-level BPE in which a word has other tokens at the start of a line than after a space, as that of GPT-2."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<e>"], show_progress=False)
    inner.train_from_iterator(LINES, trainer)
    special = {"<pad>": "<e>", "<bos>": "<e>", "<eos>": "<e>", "<unk>": "<e>"}
    return PretrainedTokenizer(inner.to_str().encode(), special)


@pytest.mark.parametrize("make", [byte_level, lambda: build_tokenizer("word", LINES)])
def test_the_ids_of_words_make_up_those_of_their_line(make):
    inner = make()
    for normalization in (None, Normalization(nfkc=False)):
        tokenizer = TextTokenizer(inner, None if isinstance(inner, PretrainedTokenizer) else normalization)
        for line in LINES:
            ids = [word_ids(tokenizer, word, first=not n) for n, word in enumerate(line.split(" "))]
            assert [token for of_word in ids for token in of_word] == tokenizer.encode(line)


def test_a_word_after_a_space_can_differ_from_the_first():
    tokenizer = TextTokenizer(byte_level(), None)
    assert word_ids(tokenizer, "low") != word_ids(tokenizer, "low", first=True)
