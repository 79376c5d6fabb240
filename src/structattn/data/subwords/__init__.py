"""Words in smaller parts: byte pairs and SentencePiece, learnt from counted words, with their numbering."""

from structattn.data.subwords.byte_pairs import BytePairs
from structattn.data.subwords.learning import learn_byte_pairs, learn_sentence_pieces
from structattn.data.subwords.sentence_pieces import SentencePieces
from structattn.data.subwords.tokenizer import Subwords, SubwordTokenizer
from structattn.data.subwords.vocabularies import numbered

__all__ = [
    "BytePairs",
    "SentencePieces",
    "SubwordTokenizer",
    "Subwords",
    "learn_byte_pairs",
    "learn_sentence_pieces",
    "numbered",
]
