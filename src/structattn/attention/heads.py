"""Attention of heads to keys and values: what all mechanisms share that compute scores from queries and keys."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from structattn.attention.cache import Cache, CrossAttentionCache, KeyValueCache, cached_softmax_attention
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import (
    InputProjection,
    apply_positions,
    concatenate_heads,
    one_position,
    split_heads,
)
from structattn.attention.protocols import Explanation, Streams
from structattn.operators import softmax_attention
from structattn.operators.common.checks import (
    computing_precision,
    full_memory_lengths,
    head_size,
    mask_padding,
    without_autocast,
    wrong_batch,
)
from structattn.support.shapes import Float, Lengths

X = TypeVar("X")  # Tensor, or Streams: hidden states (B, T, d)


@dataclass(frozen=True)
class AttentionInputs:
    """Queries, keys and masks: all that attention scores depend on.

    Args:
        query: q, with positions applied.
        key: k, likewise.
        bias: added to the scores.
        lengths: the number of queries of each sequence.
        memory_lengths: the number of keys of each sequence; ``lengths`` where None.
        causal: query t attends to keys 0 to t only.
    """

    query: Float[Tensor, "batch heads time size"]
    key: Float[Tensor, "batch heads source size"]
    bias: Tensor | None = None
    lengths: Tensor | None = None
    memory_lengths: Tensor | None = None
    causal: bool = False

    def scores(self) -> Float[Tensor, "batch heads time source"]:
        """Return the unmasked scores l[t, s] = q_t . k_s / sqrt(D) + bias[t, s] in float32 or better.

        Queries and keys that are not finite give NaN in their own row or column. They are set to zero in the matrix
        product, whose gradient would otherwise be NaN everywhere.
        """
        (query, key), _ = computing_precision(query=self.query, key=self.key)
        finite, finite_key = query.isfinite().all(-1, keepdim=True), key.isfinite().all(-1, keepdim=True)
        with without_autocast(query.device):
            query = torch.where(finite, query, 0) / math.sqrt(query.shape[3])
            scores = query @ torch.where(finite_key, key, 0).transpose(2, 3)
            scores = scores.masked_fill(~(finite & finite_key.transpose(2, 3)), torch.nan)
            return scores if self.bias is None else scores + self.bias

    def softmax_attention(
        self, values: Float[Tensor, "batch heads source size"], dropout: float = 0.0, return_weights: bool = False
    ) -> Any:
        """Return the outputs of softmax attention, and its weights on request."""
        attention: Any = softmax_attention  # its overloads need return_weights as a literal
        return attention(
            self.query,
            self.key,
            values,
            lengths=self.lengths,
            memory_lengths=self.memory_lengths,
            causal=self.causal,
            mask=self.bias,
            dropout=dropout,
            return_weights=return_weights,
        )


class Selection(Protocol):
    """How heads combine values by their scores: one tensor of values, or for two streams two.

    Outputs are (B, H, T, size), for two streams ``Streams`` of that shape. With ``training`` they may be random.
    """

    def attend(self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool) -> Any:
        """Return the outputs."""
        ...

    def attend_with_weights(
        self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool
    ) -> tuple[Any, Float[Tensor, "batch heads time source"]]:
        """Return the outputs and the differentiable weights."""
        ...

    def attend_cached(self, query: Tensor, cache: Cache, positions: ScorePositions | None, training: bool) -> Any:
        """Return the outputs of one query for each member of the batch, at the position of the last key."""
        ...

    def explain(self, inputs: AttentionInputs, values: tuple[Tensor, ...]) -> Explanation:
        """Return the weights."""
        ...


@dataclass(frozen=True)
class SoftmaxSelection:
    """The mean of the values, weighted by the softmax of the scores.

    Args:
        dropout: rate at which weights are dropped in training.
    """

    dropout: float

    def attend(self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool) -> Any:
        """Return the outputs."""
        return inputs.softmax_attention(values[0], dropout=self.dropout if training else 0.0)

    def attend_with_weights(self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool) -> Any:
        """Return the outputs and the weights, before dropout."""
        return inputs.softmax_attention(values[0], dropout=self.dropout if training else 0.0, return_weights=True)

    def attend_cached(self, query: Tensor, cache: Cache, positions: ScorePositions | None, training: bool) -> Any:
        """Return the outputs."""
        return cached_softmax_attention(query, cache, self.dropout if training else 0.0, positions)

    def explain(self, inputs: AttentionInputs, values: tuple[Tensor, ...]) -> Explanation:
        """Return the weights."""
        return Explanation("softmax", inputs.softmax_attention(values[0], return_weights=True)[1])


def _each(x: X, function: Callable[[Tensor], Tensor]) -> Any:
    return x.map(function) if isinstance(x, Streams) else function(x)  # type: ignore[arg-type]  # a tensor


def _masked(x: X, lengths: Tensor | None, name: str = "lengths") -> X:
    masked: X = _each(x, lambda each: mask_padding(each, lengths, name))
    return masked


class _Heads(nn.Module, Generic[X]):
    """What self-attention and cross-attention of heads share.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
    """

    selection: Selection
    output: Callable[[Any], Any]  # of the concatenated heads: a module; a method for two streams

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.d_model, self.num_heads, self.size = d_model, num_heads, head_size(d_model, num_heads)

    def _merged(self, outputs: Any) -> X:
        merged: X = self.output(_each(outputs, concatenate_heads))
        return merged


class SelfHeads(_Heads[X]):
    """Self-attention whose keys and values are projections of the positions.

    Subclasses of two streams say what they project and what they return.
    """

    projection: InputProjection  # to queries, keys, values
    causal: bool
    positions: ScorePositions | None

    def forward(self, x: X, lengths: Lengths = None) -> X:
        """Process whole sequences (B, T, d). Cost: O(T^2 d + T d^2) each."""
        return _masked(self._merged(self.selection.attend(*self._whole(x, lengths), self.training)), lengths)

    def attend(self, x: X, lengths: Lengths = None) -> tuple[X, Float[Tensor, "batch heads time time"]]:
        """Return the output and the differentiable weights.

        Those of softmax attention are before dropout, those of hard attention a sample in training and one-hot in
        evaluation; of two streams they are the semantic one's.
        """
        outputs, weights = self.selection.attend_with_weights(*self._whole(x, lengths), self.training)
        return _masked(self._merged(outputs), lengths), weights

    def initial_state(self, batch_size: int) -> KeyValueCache:
        """Return an empty cache of keys and values.

        Raises:
            ValueError: the layer is bidirectional.
        """
        require_causal(self.causal)
        return KeyValueCache.empty(batch_size, [(self.num_heads, self.size)] * self._num_cached, self.projection.weight)

    def step(self, x_t: X, state: KeyValueCache) -> tuple[X, KeyValueCache]:
        """Process one position (B, d). Cost: O(t d + d^2) for step t."""
        query, *keys_and_values = self._projected(_each(x_t, one_position))
        state = state.append(*keys_and_values)
        outputs = self.selection.attend_cached(query, state, self.positions, self.training)
        return self.output(_each(outputs, lambda heads: heads.flatten(1))), state

    @torch.no_grad()
    def explain(self, x: X, lengths: Lengths = None) -> Explanation:
        """Return the weights of every head in evaluation; see ``Explanation``."""
        return self.selection.explain(*self._whole(x, lengths))

    _num_cached = 2

    def _projected(self, x: Any) -> Any:
        """Return queries, keys, and all values."""
        return split_heads(self.projection(x), self.num_heads, parts=3)

    def _whole(self, x: X, lengths: Tensor | None) -> tuple[AttentionInputs, tuple[Tensor, ...]]:
        query, key, *values = self._projected(_masked(x, lengths))
        inputs = AttentionInputs(*apply_positions(self.positions, query, key), lengths, causal=self.causal)
        return inputs, tuple(values)


class CrossHeads(_Heads[X]):
    """Attention to the keys and values of a memory.

    Subclasses of two streams say what they project and what they return.
    """

    query: InputProjection
    memory: InputProjection  # to keys, values

    def forward(self, x: X, memory: X, lengths: Lengths = None, memory_lengths: Lengths = None) -> X:
        """Process sequences (B, T, d) and memories (B, S, d). Cost: O(T S d + (T + S) d^2) each."""
        inputs, values = self._whole(x, memory, lengths, memory_lengths)
        return _masked(self._merged(self.selection.attend(inputs, values, self.training)), lengths)

    def attend(
        self, x: X, memory: X, lengths: Lengths = None, memory_lengths: Lengths = None
    ) -> tuple[X, Float[Tensor, "batch heads time source"]]:
        """Return the output and the differentiable weights, as ``SelfHeads`` does."""
        inputs, values = self._whole(x, memory, lengths, memory_lengths)
        outputs, weights = self.selection.attend_with_weights(inputs, values, self.training)
        return _masked(self._merged(outputs), lengths), weights

    def initial_state(self, memory: X, memory_lengths: Lengths = None) -> CrossAttentionCache:
        """Project the memory to keys and values. Cost: O(S d^2) each."""
        return CrossAttentionCache.from_tensors(
            self._projected_memory(_masked(memory, memory_lengths, "memory_lengths")), memory_lengths
        )

    def step(self, x_t: X, state: CrossAttentionCache) -> tuple[X, CrossAttentionCache]:
        """Process one position (B, d). Cost: O(S d + d^2)."""
        (query,) = self._queries(_each(x_t, one_position))
        if len(query) != len(state.row_indices):
            raise wrong_batch(query, state.row_indices)
        outputs = self.selection.attend_cached(query, state, None, self.training)
        return self.output(_each(outputs, lambda heads: heads.flatten(1))), state

    @torch.no_grad()
    def explain(self, x: X, memory: X, lengths: Lengths = None, memory_lengths: Lengths = None) -> Explanation:
        """Return the weights of every head in evaluation; see ``Explanation``."""
        return self.selection.explain(*self._whole(x, memory, lengths, memory_lengths))

    def _queries(self, x: Any) -> Any:
        return split_heads(self.query(x), self.num_heads)

    def _projected_memory(self, memory: Any) -> Any:
        """Return keys and all values."""
        return split_heads(self.memory(memory), self.num_heads, parts=2)

    def _whole(
        self, x: X, memory: X, lengths: Tensor | None, memory_lengths: Tensor | None
    ) -> tuple[AttentionInputs, tuple[Tensor, ...]]:
        (query,) = self._queries(_masked(x, lengths))
        key, *values = self._projected_memory(_masked(memory, memory_lengths, "memory_lengths"))
        end = full_memory_lengths(query, key, lengths, memory_lengths)
        return AttentionInputs(query, key, lengths=lengths, memory_lengths=end), tuple(values)


def require_causal(causal: bool) -> None:
    """Raise ValueError for a bidirectional layer, which has no incremental steps."""
    if not causal:
        raise ValueError("a layer with causal=False attends to later positions and cannot go step by step")
