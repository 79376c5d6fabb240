"""Multi-head hard attention, within a sequence and to a memory: each head reads one position."""

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


class HardAttention(nn.Module):
    """y_t = W_y concat_h(v_z) + b, where z is a position drawn or chosen (the Discrete Transformer paper, section 4).

    The scores are those of ``SoftmaxAttention``. In evaluation z has the largest of them, the lowest position of
    equals, and queries, keys and positions get no gradient. In training z is drawn from their softmax, relaxed by the
    Gumbel-softmax to weights through which gradients flow; each call draws anew from torch's generator. 4 d (d + 1)
    parameters, or 4 d^2 without biases.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        temperature: of the draws; near 0 they become one-hot.
        straight_through: read one position in training, too, with the gradient of the relaxed weights.
        causal: position t sees positions up to t only. A layer that sees everything has no step.
        bias: whether the four maps have biases.
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
        self.projection = IntoHeads(d_model, num_heads, parts=3, bias=bias)  # queries, keys, values
        self.output = OutOfHeads(d_model, bias)
        self.positions = positions

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence. Cost: O(T^2 d + T d^2) for each."""
        return self.attend(x, lengths)[0]

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """What ``forward`` gives, and the weights: the draw itself in training, one-hot in evaluation."""
        readings, weights = self.choice.read_with_weights(*self._lookup(x, lengths), self.training)
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
        first, state = state.time, state.and_one_more(key, value)
        keys, values = state.parts
        readings = self.choice.read(Lookup(*placed(self.positions, query, keys, first)), values, self.training)
        return self.output(readings)[:, 0], state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """Where every head looks in evaluation, and with what probability."""
        return self.choice.explain(*self._lookup(x, lengths))

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _lookup(self, x: Tensor, lengths: Tensor | None) -> tuple[Lookup, Tensor]:
        query, key, value = self.projection(without_padding(x, lengths))
        return Lookup(*placed(self.positions, query, key), lengths, causal=self.causal), value


class CrossHardAttention(nn.Module):
    """As ``HardAttention``, with the keys and values of a memory: 4 d (d + 1) parameters, 4 d^2 without biases.

    Args:
        d_model: d, of the sequence and of the memory.
        num_heads: H, which must divide d.
        temperature: of the draws; near 0 they become one-hot.
        straight_through: read one position in training, too, with the gradient of the relaxed weights.
        bias: whether the four maps have biases.
    """

    def __init__(
        self, d_model: int, num_heads: int, temperature: float = 1.0, straight_through: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        self.choice = Choice(temperature, straight_through)
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
        return self.attend(x, memory, lengths, memory_lengths)[0]

    def attend(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time source"]]:
        """What ``forward`` gives, and the weights: the draw itself in training, one-hot in evaluation."""
        readings, weights = self.choice.read_with_weights(
            *self._lookup(x, memory, lengths, memory_lengths), self.training
        )
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
        keys, values = state.parts
        readings = self.choice.read(Lookup(query, keys, memory_lengths=state.lengths), values, self.training)
        return self.output(readings)[:, 0], state

    @torch.no_grad()
    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """Where every head looks in evaluation, and with what probability."""
        return self.choice.explain(*self._lookup(x, memory, lengths, memory_lengths))

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _lookup(
        self, x: Tensor, memory: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
    ) -> tuple[Lookup, Tensor]:
        (query,) = self.query(without_padding(x, lengths))
        key, value = self.memory(without_padding(memory, memory_lengths))
        end = memory_end(lengths, memory_lengths, memory.shape[1])
        return Lookup(query, key, lengths=lengths, memory_lengths=end), value
