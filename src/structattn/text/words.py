"""Encoding of single words, as they are encoded within a line."""

from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.pretrained_tokenizer import PretrainedTokenizer


def word_ids(tokenizer: TextTokenizer, word: str, *, first: bool = False) -> list[int]:
    """Return the ids of a word within a line; the spaces between characters or bytes are not part of words.

    Tokenizers of Hugging Face models may encode a word after a space differently from the first of a line.

    Args:
        tokenizer: normalizes the word first.
        word: without spaces.
        first: whether the word is the first of its line.

    Raises:
        TextError: the word cannot be encoded.
    """
    text = word if tokenizer.normalization is None else tokenizer.normalization(word)
    after_space = isinstance(tokenizer.tokenizer, PretrainedTokenizer) and not first
    return tokenizer.tokenizer.encode(f" {text}" if after_space else text)
