"""Learnable attention layers with one interface: ``layer(x, lengths)``, ``initial_state``, ``step``, ``explain``.

Self-attention (``AttentionLayer``; ``AttendingLayer`` where it also returns its weights):

- ``SoftmaxAttention``: multi-head scaled dot-product attention
- ``HardAttention``: each head selects one position
- ``GaussianAttention``: heads with hard-coded weights
- ``SuperpositionStackAttention``, ``NondeterministicStackAttention``, ``StackPointerAttention``,
  ``StackTransAttention``: differentiable stacks
- ``DeltaProductAttention``: a linear recurrence that can rotate its state
- ``TwoStreamAttention``: softmax attention for one of two ``Streams``, hard attention for the other

Cross-attention (``CrossAttentionLayer``): ``CrossSoftmaxAttention``, ``CrossHardAttention``, ``CrossGaussianAttention``
and ``CrossTwoStreamAttention``.

``SelfAttention`` puts any of the former in the place of ``nn.MultiheadAttention``, in torch's transformers.

Incremental states satisfy ``AttentionState``; ``explain`` returns an ``Explanation``; positional encodings are in
``structattn.attention.positions``.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.attention.delta_product import DeltaProductAttention
    from structattn.attention.gaussian import CrossGaussianAttention, GaussianAttention
    from structattn.attention.hard import CrossHardAttention, HardAttention
    from structattn.attention.nondeterministic_stack import NondeterministicStackAttention
    from structattn.attention.protocols import (
        AttendingLayer,
        AttentionLayer,
        AttentionState,
        CrossAttentionLayer,
        Explanation,
        SelfInitialized,
        Streams,
        XavierInitialized,
    )
    from structattn.attention.self_attention import SelfAttention
    from structattn.attention.softmax import CrossSoftmaxAttention, SoftmaxAttention
    from structattn.attention.stack_pointer import StackPointerAttention
    from structattn.attention.stack_trans import StackTransAttention
    from structattn.attention.superposition_stack import SuperpositionStackAttention
    from structattn.attention.two_stream import CrossTwoStreamAttention, TwoStreamAttention

__all__ = [
    "AttendingLayer",
    "AttentionLayer",
    "AttentionState",
    "CrossAttentionLayer",
    "CrossGaussianAttention",
    "CrossHardAttention",
    "CrossSoftmaxAttention",
    "CrossTwoStreamAttention",
    "DeltaProductAttention",
    "Explanation",
    "GaussianAttention",
    "HardAttention",
    "NondeterministicStackAttention",
    "SelfAttention",
    "SelfInitialized",
    "SoftmaxAttention",
    "StackPointerAttention",
    "StackTransAttention",
    "Streams",
    "SuperpositionStackAttention",
    "TwoStreamAttention",
    "XavierInitialized",
]

__getattr__, __dir__ = lazy_exports(__name__)
