"""Character models: word embeddings from spellings, and spellings from hidden states."""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.models.characters.embedding import (
        BidirectionalComposition,
        Composition,
        ForwardComposition,
        SpelledEmbedding,
    )
    from structattn.models.characters.spelling import SpellingDecoder, SpellingState

__all__ = [
    "BidirectionalComposition",
    "Composition",
    "ForwardComposition",
    "SpelledEmbedding",
    "SpellingDecoder",
    "SpellingState",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "BidirectionalComposition": "structattn.models.characters.embedding",
        "Composition": "structattn.models.characters.embedding",
        "ForwardComposition": "structattn.models.characters.embedding",
        "SpelledEmbedding": "structattn.models.characters.embedding",
        "SpellingDecoder": "structattn.models.characters.spelling",
        "SpellingState": "structattn.models.characters.spelling",
    },
)
