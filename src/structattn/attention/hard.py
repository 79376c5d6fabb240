"""Multi-head hard attention, in which each head selects one position: self-attention and cross-attention."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cache import CrossAttentionCache, KeyValueCache, require_causal
from structattn.attention.hard_selection import AttentionInputs, HardSelection
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, OutputProjection, apply_positions
from structattn.attention.protocols import Explanation
from structattn.operators.common.checks import full_memory_lengths, mask_padding


class HardAttention(nn.Module):
    """y_t = W_y concat_h(v_z) + b with one position z per head and query (the Discrete Transformer paper, section 4).

    The scores are those of ``SoftmaxAttention``. In evaluation z is the position with the largest score, the first of
    ties, and queries, keys and positions get no gradient. In training z is sampled from the softmax of the scores,
    relaxed by the Gumbel-softmax to differentiable weights; each call samples anew from torch's generator. 4 d (d + 1)
    parameters, or 4 d^2 without biases.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        causal: position t attends to positions up to t only. A bidirectional layer has no ``step``.
        bias: whether the four projections have biases.
        positions: acts on the scores; a module of this layer alone.
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
        noise: bool = True,
    ) -> None:
        super().__init__()
        self.selection, self.causal = HardSelection(temperature, straight_through, noise), causal
        self.projection = InputProjection(d_model, num_heads, parts=3, bias=bias)  # queries, keys, values
        self.output = OutputProjection(d_model, bias)
        self.positions = positions

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T^2 d + T d^2) each."""
        return self.attend(x, lengths)[0]

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """Return the output and the weights: the sample in training, one-hot in evaluation."""
        outputs, weights = self.selection.attend_with_weights(*self._attention_inputs(x, lengths), self.training)
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
        first, state = state.num_steps, state.append(key, value)
        keys, values = state.tensors
        outputs = self.selection.attend(
            AttentionInputs(*apply_positions(self.positions, query, keys, first)), values, self.training
        )
        return self.output(outputs)[:, 0], state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """Return the position that each head selects in evaluation, and the probabilities of all."""
        return self.selection.explain(*self._attention_inputs(x, lengths))

    def _attention_inputs(self, x: Tensor, lengths: Tensor | None) -> tuple[AttentionInputs, Tensor]:
        query, key, value = self.projection(mask_padding(x, lengths))
        return AttentionInputs(*apply_positions(self.positions, query, key), lengths, causal=self.causal), value


class CrossHardAttention(nn.Module):
    """``HardAttention`` to a memory, with 4 d (d + 1) parameters, or 4 d^2 without biases.

    Args:
        d_model: d, of the sequence and of the memory.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        bias: whether the four projections have biases.
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
        return self.attend(x, memory, lengths, memory_lengths)[0]

    def attend(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time source"]]:
        """Return the output and the weights: the sample in training, one-hot in evaluation."""
        outputs, weights = self.selection.attend_with_weights(
            *self._attention_inputs(x, memory, lengths, memory_lengths), self.training
        )
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
        keys, values = state.tensors
        outputs = self.selection.attend(
            AttentionInputs(query, keys, memory_lengths=state.lengths), values, self.training
        )
        return self.output(outputs)[:, 0], state

    @torch.no_grad()
    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """Return the position that each head selects in evaluation, and the probabilities of all."""
        return self.selection.explain(*self._attention_inputs(x, memory, lengths, memory_lengths))

    def _attention_inputs(
        self, x: Tensor, memory: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
    ) -> tuple[AttentionInputs, Tensor]:
        (query,) = self.query(mask_padding(x, lengths))
        key, value = self.memory(mask_padding(memory, memory_lengths))
        end = full_memory_lengths(lengths, memory_lengths, memory.shape[1])
        return AttentionInputs(query, key, lengths=lengths, memory_lengths=end), value
