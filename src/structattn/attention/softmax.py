"""Multi-head scaled dot-product attention, within a sequence and to a memory."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cached_attention import read_softly
from structattn.attention.cross_attention_cache import StoredMemory
from structattn.attention.explanation import Explanation
from structattn.attention.heads import IntoHeads, OutOfHeads
from structattn.attention.key_value_cache import StoredPast, require_causal
from structattn.attention.padding import memory_end, without_padding
from structattn.attention.positions.contract import ScorePositions, placed
from structattn.operators import softmax_attention


class SoftmaxAttention(nn.Module):
    """y_t = W_y concat_h(sum_s softmax_s(q_t . k_s / sqrt(d / H)) v_s) + b (Vaswani et al. 2017, section 3.2).

    Queries, keys and values are linear maps of x, with biases as in torch's MultiheadAttention: 4 d (d + 1) parameters,
    or 4 d^2 without biases.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        causal: position t sees positions up to t only. A layer that sees everything has no step.
        bias: whether the four maps have biases.
        positions: what acts on the scores; a module of this layer's own.
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
        self.dropout, self.causal = dropout, causal
        self.projection = IntoHeads(d_model, num_heads, parts=3, bias=bias)  # queries, keys, values
        self.output = OutOfHeads(d_model, bias)
        self.positions = positions

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence. Cost: O(T^2 d + T d^2) for each."""
        return without_padding(self.output(self._read(x, lengths)), lengths)

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """What ``forward`` gives, and the weights before dropout, through which gradients flow."""
        readings, weights = self._read(x, lengths, return_weights=True)
        return without_padding(self.output(readings), lengths), weights

    def initial_state(self, batch_size: int) -> StoredPast:
        """No keys and no values."""
        require_causal(self.causal)
        num_heads = self.projection.num_heads
        return StoredPast.nothing(batch_size, self.projection, num_heads, num_heads)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: StoredPast
    ) -> tuple[Float[Tensor, "batch d_model"], StoredPast]:
        """One more position. Cost: O(t d + d^2) for step t."""
        query, key, value = self.projection(x_t[:, None])
        state = state.and_one_more(key, value)
        return self.output(read_softly(query, state, self._active_dropout(), self.positions))[:, 0], state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """The weights of every head."""
        return Explanation("softmax", self._read(x, lengths, return_weights=True)[1])

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _active_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _read(self, x: Tensor, lengths: Tensor | None, return_weights: bool = False) -> Any:
        query, key, value = self.projection(without_padding(x, lengths))
        query, key, bias = placed(self.positions, query, key)
        return softmax_attention(
            query,
            key,
            value,
            lengths=lengths,
            causal=self.causal,
            mask=bias,
            dropout=self._active_dropout(),
            return_weights=return_weights,
        )


class CrossSoftmaxAttention(nn.Module):
    """As ``SoftmaxAttention``, with the keys and values of a memory: 4 d (d + 1) parameters, 4 d^2 without biases.

    Args:
        d_model: d, of the sequence and of the memory.
        num_heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        bias: whether the four maps have biases.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.dropout = dropout
        self.query = IntoHeads(d_model, num_heads, parts=1, bias=bias)
        self.memory = IntoHeads(d_model, num_heads, parts=2, bias=bias)  # keys, values
        self.output = OutOfHeads(d_model, bias)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence. Cost: O(T S d + (T + S) d^2) for each."""
        return without_padding(self.output(self._read(x, memory, lengths, memory_lengths)), lengths)

    def attend(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time source"]]:
        """What ``forward`` gives, and the weights before dropout, through which gradients flow."""
        readings, weights = self._read(x, memory, lengths, memory_lengths, return_weights=True)
        return without_padding(self.output(readings), lengths), weights

    def initial_state(
        self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Int[Tensor, " batch"] | None = None
    ) -> StoredMemory:
        """The keys and values of the memory. Cost: O(S d^2) for each."""
        return StoredMemory.of(self.memory(without_padding(memory, memory_lengths)), memory_lengths)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: StoredMemory
    ) -> tuple[Float[Tensor, "batch d_model"], StoredMemory]:
        """One more position. Cost: O(S d + d^2)."""
        (query,) = self.query(x_t[:, None])
        return self.output(read_softly(query, state, self._active_dropout()))[:, 0], state

    @torch.no_grad()
    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """The weights of every head."""
        return Explanation("softmax", self._read(x, memory, lengths, memory_lengths, return_weights=True)[1])

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _active_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _read(
        self,
        x: Tensor,
        memory: Tensor,
        lengths: Tensor | None,
        memory_lengths: Tensor | None,
        return_weights: bool = False,
    ) -> Any:
        (query,) = self.query(without_padding(x, lengths))
        key, value = self.memory(without_padding(memory, memory_lengths))
        return softmax_attention(
            query,
            key,
            value,
            lengths=lengths,
            memory_lengths=memory_end(lengths, memory_lengths, memory.shape[1]),
            dropout=self._active_dropout(),
            return_weights=return_weights,
        )
