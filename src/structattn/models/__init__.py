"""Models made of layers; they see numbers, never text."""

from structattn.models.block import Block, BlockState
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
from structattn.models.feedforward import FeedForward
from structattn.models.initialization import initialize_transformer
from structattn.models.language_model import LanguageModel
from structattn.models.layers import Layers, LayersState
from structattn.models.masked_language_model import MaskedLanguageModel
from structattn.models.recurrent import RecurrentLanguageModel, initialize_recurrent
from structattn.models.residual import Residual
from structattn.models.streams import EachStream, SemanticStream
from structattn.models.two_stream import SimplifiedTwoStreamBlock

__all__ = [
    "BidirectionalComposition",
    "Block",
    "BlockState",
    "Composition",
    "EachStream",
    "Embedding",
    "EncoderDecoder",
    "EncoderDecoderExplanation",
    "FeedForward",
    "ForwardComposition",
    "LanguageModel",
    "Layers",
    "LayersState",
    "MaskedLanguageModel",
    "RecurrentLanguageModel",
    "Residual",
    "SemanticStream",
    "SimplifiedTwoStreamBlock",
    "SpelledEmbedding",
    "SpellingDecoder",
    "SpellingState",
    "TwoStreamEmbedding",
    "initialize_recurrent",
    "initialize_transformer",
]
