"""Learnable layers, one file for each mechanism, all with the same doors (``AttentionLayer``)."""

from structattn.attention.contract import AttentionLayer, AttentionState
from structattn.attention.explanation import Explanation
from structattn.attention.nondeterministic import NondeterministicStackAttention
from structattn.attention.softmax import SoftmaxAttention
from structattn.attention.superposition import SuperpositionStackAttention

__all__ = [
    "AttentionLayer",
    "AttentionState",
    "Explanation",
    "NondeterministicStackAttention",
    "SoftmaxAttention",
    "SuperpositionStackAttention",
]
