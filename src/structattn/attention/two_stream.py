"""Two-stream attention: softmax attention for one stream, hard attention with the same scores for the other."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cache import CrossAttentionCache, KeyValueCache, require_causal
from structattn.attention.hard_selection import AttentionInputs, HardSelection
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import ConcatenatedHeads, InputProjection, OutputProjection, apply_positions
from structattn.attention.protocols import Explanation, Streams
from structattn.operators.common.checks import full_memory_lengths, mask_padding


class TwoStreamAttention(nn.Module):
    """Softmax attention for g and hard attention for h (the Discrete Transformer paper, section 5).

    K, V, Q are projections of g, and V' of h. The output for g is A V with A = softmax(Q K^T / sqrt(d / H)), that for h
    is V'_z with z selected by A as in ``HardAttention``: sampled in training, the largest in evaluation. g does not
    depend on h. Each stream has an output projection of its own: 6 d (d + 1) parameters, or 6 d^2 without biases.

    Args:
        d_model: d, of either stream.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        causal: position t attends to positions up to t only. A bidirectional layer has no ``step``.
        bias: whether the projections have biases.
        positions: acts on the scores; a module of this layer alone.
        output_projection: whether there are output projections, which the paper's equations do not have.
        noise: whether samples have Gumbel noise; False: training is deterministic.
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
        output_projection: bool = True,
        noise: bool = True,
    ) -> None:
        super().__init__()
        self.selection, self.causal = HardSelection(temperature, straight_through, noise), causal
        self.projection = InputProjection(d_model, num_heads, parts=3, bias=bias)  # of g: queries, keys, values
        self.content = InputProjection(d_model, num_heads, parts=1, bias=bias)  # of h
        self.syntactic_output = OutputProjection(d_model, bias) if output_projection else ConcatenatedHeads()
        self.semantic_output = OutputProjection(d_model, bias) if output_projection else ConcatenatedHeads()
        self.positions = positions

    def forward(self, x: Streams, lengths: Int[Tensor, " batch"] | None = None) -> Streams:
        """Process whole sequences of both streams (B, T, d). Cost: O(T^2 d + T d^2) each."""
        return self.attend(x, lengths)[0]

    def attend(
        self, x: Streams, lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Streams, Float[Tensor, "batch heads time time"]]:
        """Return both outputs and the weights of the semantic stream: a sample in training, one-hot in evaluation."""
        query, key, value = self.projection(mask_padding(x.syntactic, lengths))
        inputs = AttentionInputs(*apply_positions(self.positions, query, key), lengths, causal=self.causal)
        (content,) = self.content(mask_padding(x.semantic, lengths))
        hard, weights = self.selection.attend_with_weights(inputs, content, self.training)
        outputs = self._outputs(inputs.softmax_attention(value), hard)
        return outputs.map(lambda stream: mask_padding(stream, lengths)), weights

    def initial_state(self, batch_size: int) -> KeyValueCache:
        """Return an empty cache of keys and values of g and values of h."""
        require_causal(self.causal)
        num_heads = self.projection.num_heads
        return KeyValueCache.empty(batch_size, self.projection, num_heads, num_heads, num_heads)

    def step(self, x_t: Streams, state: KeyValueCache) -> tuple[Streams, KeyValueCache]:
        """Process one position of both streams (B, d). Cost: O(t d + d^2) for step t."""
        query, key, value = self.projection(x_t.syntactic[:, None])
        (content,) = self.content(x_t.semantic[:, None])
        first, state = state.num_steps, state.append(key, value, content)
        keys, values, contents = state.tensors
        inputs = AttentionInputs(*apply_positions(self.positions, query, keys, first))
        hard = self.selection.attend(inputs, contents, self.training)
        return self._outputs(inputs.softmax_attention(values), hard).map(lambda stream: stream[:, 0]), state

    @torch.no_grad()
    def explain(self, x: Streams, lengths: Int[Tensor, " batch"] | None = None) -> Explanation:
        """Return the position that each head of h selects in evaluation, and the weights of g."""
        query, key, value = self.projection(mask_padding(x.syntactic, lengths))
        return self.selection.explain(
            AttentionInputs(*apply_positions(self.positions, query, key), lengths, causal=self.causal), value
        )

    def _outputs(self, soft: Tensor, hard: Tensor) -> Streams:
        return Streams(self.syntactic_output(soft), self.semantic_output(hard))


class CrossTwoStreamAttention(nn.Module):
    """``TwoStreamAttention`` to a memory of two streams, with 6 d (d + 1) parameters.

    Queries are projections of the sequence's g (its h is not used), K and V of the memory's g, V' of the memory's h.

    Args:
        d_model: d, of all streams.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        bias: whether the projections have biases.
        noise: whether samples have Gumbel noise; False: training is deterministic.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        temperature: float = 1.0,
        straight_through: bool = False,
        bias: bool = True,
        noise: bool = True,
    ) -> None:
        super().__init__()
        self.selection = HardSelection(temperature, straight_through, noise)
        self.query = InputProjection(d_model, num_heads, parts=1, bias=bias)
        self.memory = InputProjection(d_model, num_heads, parts=2, bias=bias)  # of the memory's g: keys, values
        self.content = InputProjection(d_model, num_heads, parts=1, bias=bias)  # of its h
        self.syntactic_output = OutputProjection(d_model, bias)
        self.semantic_output = OutputProjection(d_model, bias)

    def forward(
        self,
        x: Streams,
        memory: Streams,
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Streams:
        """Process sequences (B, T, d) and memories (B, S, d). Cost: O(T S d + (T + S) d^2) each."""
        return self.attend(x, memory, lengths, memory_lengths)[0]

    def attend(
        self,
        x: Streams,
        memory: Streams,
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Streams, Float[Tensor, "batch heads time source"]]:
        """Return both outputs and the weights of the semantic stream: a sample in training, one-hot in evaluation."""
        keys, values, contents = self._project_memory(memory, memory_lengths)
        inputs = self._attention_inputs(mask_padding(x.syntactic, lengths), keys, lengths, memory_lengths)
        hard, weights = self.selection.attend_with_weights(inputs, contents, self.training)
        return self._outputs(inputs.softmax_attention(values), hard).map(
            lambda stream: mask_padding(stream, lengths)
        ), weights

    def initial_state(
        self, memory: Streams, memory_lengths: Int[Tensor, " batch"] | None = None
    ) -> CrossAttentionCache:
        """Project the memory to keys and values of g and values of h. Cost: O(S d^2) each."""
        return CrossAttentionCache.from_tensors(self._project_memory(memory, memory_lengths), memory_lengths)

    def step(self, x_t: Streams, state: CrossAttentionCache) -> tuple[Streams, CrossAttentionCache]:
        """Process one position of both streams (B, d). Cost: O(S d + d^2)."""
        keys, values, contents = state.tensors
        inputs = self._attention_inputs(x_t.syntactic[:, None], keys, None, state.lengths)
        hard = self.selection.attend(inputs, contents, self.training)
        return self._outputs(inputs.softmax_attention(values), hard).map(lambda stream: stream[:, 0]), state

    @torch.no_grad()
    def explain(
        self,
        x: Streams,
        memory: Streams,
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """Return the position that each head of h selects in evaluation, and the weights of g."""
        keys, _, contents = self._project_memory(memory, memory_lengths)
        inputs = self._attention_inputs(mask_padding(x.syntactic, lengths), keys, lengths, memory_lengths)
        return self.selection.explain(inputs, contents)

    def _project_memory(self, memory: Streams, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = self.memory(mask_padding(memory.syntactic, lengths))
        (contents,) = self.content(mask_padding(memory.semantic, lengths))
        return keys, values, contents

    def _attention_inputs(
        self, g: Tensor, keys: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
    ) -> AttentionInputs:
        (query,) = self.query(g)
        end = full_memory_lengths(lengths, memory_lengths, keys.shape[2])
        return AttentionInputs(query, keys, lengths=lengths, memory_lengths=end)

    def _outputs(self, soft: Tensor, hard: Tensor) -> Streams:
        return Streams(self.syntactic_output(soft), self.semantic_output(hard))
