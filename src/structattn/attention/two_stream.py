"""Attention over two streams: one softly attends, the other takes single values from where the first one looks."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cross_attention_cache import StoredMemory
from structattn.attention.explanation import Explanation
from structattn.attention.hard_selection import Choice, Lookup
from structattn.attention.heads import IntoHeads, OutOfHeads
from structattn.attention.key_value_cache import StoredPast, require_causal
from structattn.attention.padding import memory_end, without_padding
from structattn.attention.positions.contract import ScorePositions, placed


class Streams(NamedTuple):
    """The same positions twice: g decides where to look, h carries what is read. Shapes are alike.

    Args:
        syntactic: g.
        semantic: h.
    """

    syntactic: Float[Tensor, "*batch d_model"]
    semantic: Float[Tensor, "*batch d_model"]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Streams":
        """The function of either stream."""
        return Streams(function(self.syntactic), function(self.semantic))


class TwoStreamAttention(nn.Module):
    """Softmax attention for g and hard attention for h, by the same scores (the Discrete Transformer paper, section 5).

    K, V, Q come from g, the contents V' from h. g gets A V with A = softmax(Q K^T / sqrt(d / H)), h gets V'_z with z
    from A: drawn and relaxed in training, the largest in evaluation, as in ``HardAttention``. g never sees h. Each
    stream has its own output map: 6 d (d + 1) parameters, or 6 d^2 without biases.

    Args:
        d_model: d, of either stream.
        num_heads: H, which must divide d.
        temperature: of the draws; near 0 they become one-hot.
        straight_through: read one position in training, too, with the gradient of the relaxed weights.
        causal: position t sees positions up to t only. A layer that sees everything has no step.
        bias: whether the maps have biases.
        positions: what acts on the scores; a module of this layer's own.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        temperature: float = 1.0,
        straight_through: bool = False,
        causal: bool = True,
        bias: bool = True,
        positions: ScorePositions | None = None,
    ) -> None:
        super().__init__()
        self.choice, self.causal = Choice(temperature, straight_through), causal
        self.projection = IntoHeads(d_model, num_heads, parts=3, bias=bias)  # of g: queries, keys, values
        self.content = IntoHeads(d_model, num_heads, parts=1, bias=bias)  # of h
        self.syntactic_output = OutOfHeads(d_model, bias)
        self.semantic_output = OutOfHeads(d_model, bias)
        self.positions = positions

    def forward(self, x: Streams, lengths: Int[Tensor, " batch"] | None = None) -> Streams:
        """A whole sequence, both streams (B, T, d). Cost: O(T^2 d + T d^2) for each."""
        return self.attend(x, lengths)[0]

    def attend(
        self, x: Streams, lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Streams, Float[Tensor, "batch heads time time"]]:
        """What ``forward`` gives, and the weights of the semantic stream: a draw in training, one-hot in evaluation."""
        query, key, value = self.projection(without_padding(x.syntactic, lengths))
        lookup = Lookup(*placed(self.positions, query, key), lengths, causal=self.causal)
        (content,) = self.content(without_padding(x.semantic, lengths))
        hard, weights = self.choice.read_with_weights(lookup, content, self.training)
        outputs = self._outputs(lookup.soft(value), hard)
        return outputs.map(lambda stream: without_padding(stream, lengths)), weights

    def initial_state(self, batch_size: int) -> StoredPast:
        """No keys and values of g, and no contents of h."""
        require_causal(self.causal)
        num_heads = self.projection.num_heads
        return StoredPast.nothing(batch_size, self.projection, num_heads, num_heads, num_heads)

    def step(self, x_t: Streams, state: StoredPast) -> tuple[Streams, StoredPast]:
        """One more position of both streams (B, d). Cost: O(t d + d^2) for step t."""
        query, key, value = self.projection(x_t.syntactic[:, None])
        (content,) = self.content(x_t.semantic[:, None])
        first, state = state.time, state.and_one_more(key, value, content)
        keys, values, contents = state.parts
        lookup = Lookup(*placed(self.positions, query, keys, first))
        hard = self.choice.read(lookup, contents, self.training)
        return self._outputs(lookup.soft(values), hard).map(lambda stream: stream[:, 0]), state

    @torch.no_grad()
    def explain(self, x: Streams, lengths: Int[Tensor, " batch"] | None = None) -> Explanation:
        """Where every head of h looks in evaluation, and with what weights g does."""
        query, key, value = self.projection(without_padding(x.syntactic, lengths))
        return self.choice.explain(Lookup(*placed(self.positions, query, key), lengths, causal=self.causal), value)

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _outputs(self, soft: Tensor, hard: Tensor) -> Streams:
        return Streams(self.syntactic_output(soft), self.semantic_output(hard))


class CrossTwoStreamAttention(nn.Module):
    """As ``TwoStreamAttention``, with keys, values and contents of a memory of two streams: 6 d (d + 1) parameters.

    Queries come from the sequence's g; its h has no part in this. K and V come from the memory's g, V' from its h.

    Args:
        d_model: d, of all streams.
        num_heads: H, which must divide d.
        temperature: of the draws; near 0 they become one-hot.
        straight_through: read one position in training, too, with the gradient of the relaxed weights.
        bias: whether the maps have biases.
    """

    def __init__(
        self, d_model: int, num_heads: int, temperature: float = 1.0, straight_through: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        self.choice = Choice(temperature, straight_through)
        self.query = IntoHeads(d_model, num_heads, parts=1, bias=bias)
        self.memory = IntoHeads(d_model, num_heads, parts=2, bias=bias)  # of the memory's g: keys, values
        self.content = IntoHeads(d_model, num_heads, parts=1, bias=bias)  # of its h
        self.syntactic_output = OutOfHeads(d_model, bias)
        self.semantic_output = OutOfHeads(d_model, bias)

    def forward(
        self,
        x: Streams,
        memory: Streams,
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Streams:
        """A whole sequence (B, T, d) of streams, a memory (B, S, d). Cost: O(T S d + (T + S) d^2) for each."""
        return self.attend(x, memory, lengths, memory_lengths)[0]

    def attend(
        self,
        x: Streams,
        memory: Streams,
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Streams, Float[Tensor, "batch heads time source"]]:
        """What ``forward`` gives, and the weights of the semantic stream: a draw in training, one-hot in evaluation."""
        keys, values, contents = self._of_memory(memory, memory_lengths)
        lookup = self._lookup(without_padding(x.syntactic, lengths), keys, lengths, memory_lengths)
        hard, weights = self.choice.read_with_weights(lookup, contents, self.training)
        return self._outputs(lookup.soft(values), hard).map(lambda stream: without_padding(stream, lengths)), weights

    def initial_state(self, memory: Streams, memory_lengths: Int[Tensor, " batch"] | None = None) -> StoredMemory:
        """The keys, values and contents of the memory. Cost: O(S d^2) for each."""
        return StoredMemory.of(self._of_memory(memory, memory_lengths), memory_lengths)

    def step(self, x_t: Streams, state: StoredMemory) -> tuple[Streams, StoredMemory]:
        """One more position (B, d). Cost: O(S d + d^2)."""
        keys, values, contents = state.parts
        lookup = self._lookup(x_t.syntactic[:, None], keys, None, state.lengths)
        hard = self.choice.read(lookup, contents, self.training)
        return self._outputs(lookup.soft(values), hard).map(lambda stream: stream[:, 0]), state

    @torch.no_grad()
    def explain(
        self,
        x: Streams,
        memory: Streams,
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """Where every head of h looks in evaluation, and with what weights g does."""
        keys, _, contents = self._of_memory(memory, memory_lengths)
        lookup = self._lookup(without_padding(x.syntactic, lengths), keys, lengths, memory_lengths)
        return self.choice.explain(lookup, contents)

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _of_memory(self, memory: Streams, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values of g, contents of h."""
        keys, values = self.memory(without_padding(memory.syntactic, lengths))
        (contents,) = self.content(without_padding(memory.semantic, lengths))
        return keys, values, contents

    def _lookup(self, g: Tensor, keys: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None) -> Lookup:
        (query,) = self.query(g)
        end = memory_end(lengths, memory_lengths, keys.shape[2])
        return Lookup(query, keys, lengths=lengths, memory_lengths=end)

    def _outputs(self, soft: Tensor, hard: Tensor) -> Streams:
        return Streams(self.syntactic_output(soft), self.semantic_output(hard))
