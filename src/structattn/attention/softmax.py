"""Multi-head scaled dot-product attention."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.explanation import Explanation
from structattn.attention.padding import without_padding
from structattn.operators import softmax_attention


@dataclass(frozen=True)
class SoftmaxState:
    """The keys and values of the steps so far."""

    keys: Float[Tensor, "batch heads time size"]
    values: Float[Tensor, "batch heads time size"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "SoftmaxState":
        """The states of some members of the batch, in a new order."""
        return SoftmaxState(self.keys.index_select(0, indices), self.values.index_select(0, indices))


class SoftmaxAttention(nn.Module):
    """y_t = W_y concat_h(sum_s softmax_s(q_t . k_s / sqrt(d / H)) v_s) + b (Vaswani et al. 2017, section 3.2).

    Queries, keys and values are linear maps of x with biases, as in torch's MultiheadAttention: 4 d (d + 1) parameters.

    Args:
        width: d.
        heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        causal: position t sees positions up to t only. A layer that sees everything has no step.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, causal: bool = True) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"{heads} heads do not divide the width {width}")
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.projection = nn.Linear(width, 3 * width)  # queries, keys, values
        self.output = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """A whole sequence. Cost: O(T^2 d + T d^2) for each."""
        query, key, value = self._heads(without_padding(x, lengths))
        readings = softmax_attention(
            query, key, value, lengths=lengths, causal=self.causal, dropout=self._active_dropout()
        )
        return without_padding(self._merged(readings), lengths)

    def initial_state(self, batch_size: int) -> SoftmaxState:
        """No keys and no values."""
        if not self.causal:
            raise ValueError("a layer with causal=False sees later positions and cannot go step by step")
        size = self.projection.in_features // self.heads
        empty = self.projection.weight.new_zeros(batch_size, self.heads, 0, size)
        return SoftmaxState(empty, empty)

    def step(
        self, x_t: Float[Tensor, "batch width"], state: SoftmaxState
    ) -> tuple[Float[Tensor, "batch width"], SoftmaxState]:
        """One more position. Cost: O(t d + d^2) for step t."""
        query, key, value = self._heads(x_t[:, None])
        state = SoftmaxState(torch.cat([state.keys, key], dim=2), torch.cat([state.values, value], dim=2))
        readings = softmax_attention(query, state.keys, state.values, dropout=self._active_dropout())
        return self._merged(readings)[:, 0], state

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """The weights of every head."""
        query, key, value = self._heads(without_padding(x, lengths))
        _, weights = softmax_attention(query, key, value, lengths=lengths, causal=self.causal, return_weights=True)
        return Explanation("softmax", weights)

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _active_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (B, H, T, d / H)."""
        projected: Tensor = self.projection(x)
        packed = projected.view(*x.shape[:2], 3, self.heads, x.shape[2] // self.heads)
        return packed.permute(2, 0, 3, 1, 4).unbind(0)

    def _merged(self, readings: Tensor) -> Tensor:
        y: Tensor = self.output(readings.transpose(1, 2).flatten(2))
        return y
