"""Words made of characters: vectors of words from their spelling, and spellings from vectors."""

from structattn.models.characters.composition import BidirectionalComposition, Composition, ForwardComposition
from structattn.models.characters.embedding import SpelledEmbedding
from structattn.models.characters.spelling import SpellingDecoder, SpellingState

__all__ = [
    "BidirectionalComposition",
    "Composition",
    "ForwardComposition",
    "SpelledEmbedding",
    "SpellingDecoder",
    "SpellingState",
]
