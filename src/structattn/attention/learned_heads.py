"""Scaled dot-product heads that share a layer with hard-coded ones."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention.cached_attention import Stored, read_softly
from structattn.attention.positions.contract import ScorePositions, placed
from structattn.operators import softmax_attention


class LearnedHeads(nn.Module):
    """Queries and keys of the learned heads of a layer, and their readings from values that the layer gives them.

    The two maps have no biases: 2 d L size parameters for L heads.

    Args:
        d_model: d, of what queries and keys are made from.
        num_heads: L.
        size: of a head.
        dropout: rate at which weights are dropped in training.
        positions: what acts on the scores; a module of this layer's own.
    """

    def __init__(
        self, d_model: int, num_heads: int, size: int, dropout: float, positions: ScorePositions | None = None
    ) -> None:
        super().__init__()
        self.num_heads, self.size, self.dropout = num_heads, size, dropout
        self.query = nn.Linear(d_model, num_heads * size, bias=False)
        self.key = nn.Linear(d_model, num_heads * size, bias=False)
        self.positions = positions

    def queries(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch heads time size"]:
        """One query of each head for each position."""
        return self._split(self.query(x))

    def keys(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch heads time size"]:
        """One key of each head for each position."""
        return self._split(self.key(x))

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        value: Float[Tensor, "batch heads source size"],
        **options: Any,
    ) -> Any:
        """What queries made of ``x`` read with keys made of ``memory``: (B, L, T, size), and weights if asked for.

        ``options`` are those of ``softmax_attention``.
        """
        query, key, bias = placed(self.positions, self.queries(x), self.keys(memory))
        return softmax_attention(query, key, value, mask=bias, dropout=self._active_dropout(), **options)

    def read_stored(
        self, query: Float[Tensor, "batch heads 1 size"], state: Stored
    ) -> Float[Tensor, "batch heads 1 size"]:
        """What one query of each member reads of keys and values that are stored."""
        return read_softly(query, state, self._active_dropout(), self.positions)

    def _active_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, self.size).transpose(1, 2)
