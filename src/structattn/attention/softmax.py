"""Multi-head scaled dot-product attention: self-attention and cross-attention."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cache import CrossAttentionCache, KeyValueCache, cached_softmax_attention, require_causal
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, OutputProjection, apply_positions
from structattn.attention.protocols import Explanation
from structattn.operators import softmax_attention
from structattn.operators.common.checks import full_memory_lengths, mask_padding
from structattn.operators.common.dropout import checked_rate


class SoftmaxAttention(nn.Module):
    """y_t = W_y concat_h(sum_s softmax_s(q_t . k_s / sqrt(d / H)) v_s) + b (Vaswani et al. 2017, section 3.2).

    Queries, keys and values are linear projections of x, with biases as in torch's MultiheadAttention: 4 d (d + 1)
    parameters, or 4 d^2 without biases.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        causal: position t attends to positions up to t only. A bidirectional layer has no ``step``.
        bias: whether the four projections have biases.
        positions: acts on the scores; a module of this layer alone.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        causal: bool = True,
        bias: bool = True,
        positions: ScorePositions | None = None,
    ) -> None:
        super().__init__()
        self.dropout, self.causal = checked_rate(dropout), causal
        self.projection = InputProjection(d_model, num_heads, parts=3, bias=bias)  # queries, keys, values
        self.output = OutputProjection(d_model, bias)
        self.positions = positions

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^2 d + T d^2) each."""
        return mask_padding(self.output(self._attend(x, lengths)), lengths)

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """Return the output and the differentiable weights, before dropout."""
        outputs, weights = self._attend(x, lengths, return_weights=True)
        return mask_padding(self.output(outputs), lengths), weights

    def initial_state(self, batch_size: int) -> KeyValueCache:
        """Return an empty cache of keys and values."""
        require_causal(self.causal)
        num_heads = self.projection.num_heads
        return KeyValueCache.empty(batch_size, self.projection, num_heads, num_heads)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: KeyValueCache
    ) -> tuple[Float[Tensor, "batch d_model"], KeyValueCache]:
        """Process one position. Cost: O(t d + d^2) for step t."""
        query, key, value = self.projection(x_t[:, None])
        state = state.append(key, value)
        return self.output(
            cached_softmax_attention(query, state, self.dropout if self.training else 0.0, self.positions)
        )[:, 0], state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """Return the weights of every head."""
        return Explanation("softmax", self._attend(x, lengths, return_weights=True)[1])

    def _attend(self, x: Tensor, lengths: Tensor | None, return_weights: bool = False) -> Any:
        query, key, value = self.projection(mask_padding(x, lengths))
        query, key, bias = apply_positions(self.positions, query, key)
        return softmax_attention(
            query,
            key,
            value,
            lengths=lengths,
            causal=self.causal,
            mask=bias,
            dropout=self.dropout if self.training else 0.0,
            return_weights=return_weights,
        )


class CrossSoftmaxAttention(nn.Module):
    """``SoftmaxAttention`` to a memory, with 4 d (d + 1) parameters, or 4 d^2 without biases.

    Args:
        d_model: d, of the sequence and of the memory.
        num_heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        bias: whether the four projections have biases.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.dropout = checked_rate(dropout)
        self.query = InputProjection(d_model, num_heads, parts=1, bias=bias)
        self.memory = InputProjection(d_model, num_heads, parts=2, bias=bias)  # keys, values
        self.output = OutputProjection(d_model, bias)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T S d + (T + S) d^2) each."""
        return mask_padding(self.output(self._attend(x, memory, lengths, memory_lengths)), lengths)

    def attend(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time source"]]:
        """Return the output and the differentiable weights, before dropout."""
        outputs, weights = self._attend(x, memory, lengths, memory_lengths, return_weights=True)
        return mask_padding(self.output(outputs), lengths), weights

    def initial_state(
        self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Int[Tensor, " batch"] | None = None
    ) -> CrossAttentionCache:
        """Project the memory to keys and values. Cost: O(S d^2) each."""
        return CrossAttentionCache.from_tensors(self.memory(mask_padding(memory, memory_lengths)), memory_lengths)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: CrossAttentionCache
    ) -> tuple[Float[Tensor, "batch d_model"], CrossAttentionCache]:
        """Process one position. Cost: O(S d + d^2)."""
        (query,) = self.query(x_t[:, None])
        return self.output(cached_softmax_attention(query, state, self.dropout if self.training else 0.0))[:, 0], state

    @torch.no_grad()
    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """Return the weights of every head."""
        return Explanation("softmax", self._attend(x, memory, lengths, memory_lengths, return_weights=True)[1])

    def _attend(
        self,
        x: Tensor,
        memory: Tensor,
        lengths: Tensor | None,
        memory_lengths: Tensor | None,
        return_weights: bool = False,
    ) -> Any:
        (query,) = self.query(mask_padding(x, lengths))
        key, value = self.memory(mask_padding(memory, memory_lengths))
        return softmax_attention(
            query,
            key,
            value,
            lengths=lengths,
            memory_lengths=full_memory_lengths(lengths, memory_lengths, memory.shape[1]),
            dropout=self.dropout if self.training else 0.0,
            return_weights=return_weights,
        )
