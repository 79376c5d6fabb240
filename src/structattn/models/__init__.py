"""Models of token ids: transformers and recurrent networks, without any knowledge of text.

- ``LanguageModel``, ``MaskedLanguageModel``, ``EncoderDecoder``: transformers
- ``RecurrentLanguageModel``: LSTM or Elman network, optionally with a stack
- ``Layers`` of ``Block``s with ``Residual`` sublayers, ``FeedForward``; ``Embedding``, ``TwoStreamEmbedding``
- ``LoopedLayers``, which are applied several times; ``PaddedLayers``, with blank positions after a string;
  ``DepthStackLayers``, with a stack from layer to layer
- ``SpelledEmbedding`` with a ``Composition`` (``BidirectionalComposition``, ``ForwardComposition``) and
  ``SpellingDecoder``: words from and to characters
- ``EachStream``, ``SemanticStream``, ``FeedForwardFirst``: hidden states of two streams
- ``initialize_transformer``, ``initialize_recurrent``: initial weights
- ``class_of``, ``id_of``: output classes of token ids, and ids of classes: class c of the logits is id c + 2
- ``evaluating``, ``evaluating_with_dropout``: evaluation mode for a block of code
- ``CausalModel``, ``AttendingModel``: protocols of models
- ``BlockState``, ``LayersState``, ``LoopedState``, ``SpellingState``: incremental states; ``EncoderDecoderExplanation``
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.models.block import Block, BlockState, FeedForward, Residual
    from structattn.models.characters.embedding import (
        BidirectionalComposition,
        Composition,
        ForwardComposition,
        SpelledEmbedding,
    )
    from structattn.models.characters.spelling import SpellingDecoder, SpellingState
    from structattn.models.depth_stack import DepthStackLayers
    from structattn.models.embedding import Embedding, TwoStreamEmbedding
    from structattn.models.encoder_decoder import EncoderDecoder, EncoderDecoderExplanation
    from structattn.models.initialization import initialize_transformer
    from structattn.models.language_model import LanguageModel, MaskedLanguageModel
    from structattn.models.layers import Layers, LayersState
    from structattn.models.looped import LoopedLayers, LoopedState, PaddedLayers
    from structattn.models.mode import evaluating, evaluating_with_dropout
    from structattn.models.protocols import AttendingModel, CausalModel
    from structattn.models.recurrent.initialization import initialize_recurrent
    from structattn.models.recurrent.language_model import RecurrentLanguageModel
    from structattn.models.two_stream import EachStream, FeedForwardFirst, SemanticStream
    from structattn.support.special_tokens import class_of, id_of

__all__ = [
    "AttendingModel",
    "BidirectionalComposition",
    "Block",
    "BlockState",
    "CausalModel",
    "Composition",
    "DepthStackLayers",
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
    "LoopedLayers",
    "LoopedState",
    "MaskedLanguageModel",
    "PaddedLayers",
    "RecurrentLanguageModel",
    "Residual",
    "SemanticStream",
    "SpelledEmbedding",
    "SpellingDecoder",
    "SpellingState",
    "TwoStreamEmbedding",
    "class_of",
    "evaluating",
    "evaluating_with_dropout",
    "id_of",
    "initialize_recurrent",
    "initialize_transformer",
]

__getattr__, __dir__ = lazy_exports(__name__)
