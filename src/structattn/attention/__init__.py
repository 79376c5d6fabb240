"""Learnable layers, one file for each mechanism, all with the same doors (``AttentionLayer``)."""

from structattn.attention.contract import AttentionLayer, AttentionState, CrossAttentionLayer, WeighingLayer
from structattn.attention.cross_gaussian import CrossGaussianAttention
from structattn.attention.explanation import Explanation
from structattn.attention.gaussian import GaussianAttention
from structattn.attention.hard import CrossHardAttention, HardAttention
from structattn.attention.softmax import CrossSoftmaxAttention, SoftmaxAttention
from structattn.attention.stacks.nondeterministic import NondeterministicStackAttention
from structattn.attention.stacks.stack_pointer import StackPointerAttention
from structattn.attention.stacks.superposition import SuperpositionStackAttention
from structattn.attention.two_stream import CrossTwoStreamAttention, Streams, TwoStreamAttention

__all__ = [
    "AttentionLayer",
    "AttentionState",
    "CrossAttentionLayer",
    "CrossGaussianAttention",
    "CrossHardAttention",
    "CrossSoftmaxAttention",
    "CrossTwoStreamAttention",
    "Explanation",
    "GaussianAttention",
    "HardAttention",
    "NondeterministicStackAttention",
    "SoftmaxAttention",
    "StackPointerAttention",
    "Streams",
    "SuperpositionStackAttention",
    "TwoStreamAttention",
    "WeighingLayer",
]
