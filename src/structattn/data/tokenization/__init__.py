"""Words in smaller parts: byte pairs and SentencePiece, learnt from counted words, with their numbering."""

from structattn.data.tokenization.byte_pairs import BytePairs
from structattn.data.tokenization.sentencepiece_tokenizer import SentencePieces
from structattn.data.tokenization.subword_tokenizer import Subwords, SubwordTokenizer
from structattn.data.tokenization.subword_training import learn_byte_pairs, learn_sentence_pieces
from structattn.data.tokenization.subword_vocabulary import numbered

__all__ = [
    "BytePairs",
    "SentencePieces",
    "SubwordTokenizer",
    "Subwords",
    "learn_byte_pairs",
    "learn_sentence_pieces",
    "numbered",
]
