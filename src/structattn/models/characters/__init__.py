"""Character models: word embeddings from spellings, and spellings from hidden states."""

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
