"""Tokenizers: words, characters, bytes, byte-pair encoding and SentencePiece behind one protocol.

- ``Tokenizer``: the protocol; ``SymbolTokenizer`` (words, characters, bytes) and ``SubwordTokenizer`` implement it.
- ``Vocabulary``: symbols and their ids, special symbols first.
- ``SubwordModel``: how a ``SubwordTokenizer`` segments lines; ``BytePairEncoding`` and ``SentencePieceModel`` implement
  it. ``train_bpe`` and ``train_sentencepiece`` train them, ``build_subword_tokenizers`` adds the vocabulary.
- ``WordCharacterTokenizer``: the characters of a word, for models that compose or generate words by character.
- ``build_tokenizer``: a ``SymbolTokenizer`` from training text.
"""

from structattn.data.tokenization.byte_pair_encoding import BytePairEncoding
from structattn.data.tokenization.sentencepiece_model import SentencePieceModel
from structattn.data.tokenization.subword_tokenizer import SubwordModel, SubwordTokenizer, build_subword_tokenizers
from structattn.data.tokenization.subword_training import train_bpe, train_sentencepiece
from structattn.data.tokenization.tokenizers import SymbolTokenizer, TextError, Tokenizer, build_tokenizer
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.data.tokenization.word_characters import WordCharacterTokenizer

__all__ = [
    "BytePairEncoding",
    "SentencePieceModel",
    "SubwordModel",
    "SubwordTokenizer",
    "SymbolTokenizer",
    "TextError",
    "Tokenizer",
    "Vocabulary",
    "WordCharacterTokenizer",
    "build_subword_tokenizers",
    "build_tokenizer",
    "train_bpe",
    "train_sentencepiece",
]
