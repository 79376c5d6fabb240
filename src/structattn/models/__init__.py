"""Models of token ids: transformers and recurrent networks, without any knowledge of text.

- ``LanguageModel``, ``MaskedLanguageModel``, ``EncoderDecoder``: transformers
- ``RecurrentLanguageModel``: LSTM or Elman network, optionally with a stack
- ``Layers`` of ``Block``s with ``Residual`` sublayers, ``FeedForward``; ``Embedding``, ``TwoStreamEmbedding``
- ``SpelledEmbedding`` with a ``Composition`` (``BidirectionalComposition``, ``ForwardComposition``) and
  ``SpellingDecoder``: words from and to characters
- ``EachStream``, ``SemanticStream``, ``FeedForwardFirst``: hidden states of two streams
- ``initialize_transformer``, ``initialize_recurrent``: initial weights
- ``evaluating``, ``evaluating_with_dropout``: evaluation mode for a block of code
- ``CausalModel``, ``AttendingModel``: protocols of models
- ``BlockState``, ``LayersState``, ``SpellingState``: incremental states; ``EncoderDecoderExplanation``
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.models.block import Block, BlockState, FeedForward, Residual
    from structattn.models.characters import (
        BidirectionalComposition,
        Composition,
        ForwardComposition,
        SpelledEmbedding,
        SpellingDecoder,
        SpellingState,
    )
    from structattn.models.embedding import Embedding, TwoStreamEmbedding
    from structattn.models.encoder_decoder import EncoderDecoder, EncoderDecoderExplanation
    from structattn.models.initialization import initialize_transformer
    from structattn.models.language_model import LanguageModel, MaskedLanguageModel
    from structattn.models.layers import Layers, LayersState
    from structattn.models.mode import evaluating, evaluating_with_dropout
    from structattn.models.protocols import AttendingModel, CausalModel
    from structattn.models.recurrent import RecurrentLanguageModel, initialize_recurrent
    from structattn.models.two_stream import EachStream, FeedForwardFirst, SemanticStream

__all__ = [
    "AttendingModel",
    "BidirectionalComposition",
    "Block",
    "BlockState",
    "CausalModel",
    "Composition",
    "EachStream",
    "Embedding",
    "EncoderDecoder",
    "EncoderDecoderExplanation",
    "FeedForward",
    "FeedForwardFirst",
    "ForwardComposition",
    "LanguageModel",
    "Layers",
    "LayersState",
    "MaskedLanguageModel",
    "RecurrentLanguageModel",
    "Residual",
    "SemanticStream",
    "SpelledEmbedding",
    "SpellingDecoder",
    "SpellingState",
    "TwoStreamEmbedding",
    "evaluating",
    "evaluating_with_dropout",
    "initialize_recurrent",
    "initialize_transformer",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AttendingModel": "structattn.models.protocols",
        "BidirectionalComposition": "structattn.models.characters",
        "Block": "structattn.models.block",
        "BlockState": "structattn.models.block",
        "CausalModel": "structattn.models.protocols",
        "Composition": "structattn.models.characters",
        "EachStream": "structattn.models.two_stream",
        "Embedding": "structattn.models.embedding",
        "EncoderDecoder": "structattn.models.encoder_decoder",
        "EncoderDecoderExplanation": "structattn.models.encoder_decoder",
        "FeedForward": "structattn.models.block",
        "FeedForwardFirst": "structattn.models.two_stream",
        "ForwardComposition": "structattn.models.characters",
        "LanguageModel": "structattn.models.language_model",
        "Layers": "structattn.models.layers",
        "LayersState": "structattn.models.layers",
        "MaskedLanguageModel": "structattn.models.language_model",
        "RecurrentLanguageModel": "structattn.models.recurrent",
        "Residual": "structattn.models.block",
        "SemanticStream": "structattn.models.two_stream",
        "SpelledEmbedding": "structattn.models.characters",
        "SpellingDecoder": "structattn.models.characters",
        "SpellingState": "structattn.models.characters",
        "TwoStreamEmbedding": "structattn.models.embedding",
        "evaluating": "structattn.models.mode",
        "evaluating_with_dropout": "structattn.models.mode",
        "initialize_recurrent": "structattn.models.recurrent",
        "initialize_transformer": "structattn.models.initialization",
    },
)
