"""From queries, keys and values to what hard attention reads: what all layers with hard attention share."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.attention.explanation import Explanation
from structattn.operators import hard_attention, softmax_attention
from structattn.operators.common.precision import computing_precision


@dataclass(frozen=True)
class Lookup:
    """Queries, the keys that they are compared with, and which of these each query sees.

    Args:
        query: q, as positions left it.
        key: k, likewise.
        bias: what positions add to the scores.
        lengths: how many queries count.
        memory_lengths: how many keys count; as many as queries where None.
        causal: query t sees keys 0 to t only.
    """

    query: Float[Tensor, "batch heads time size"]
    key: Float[Tensor, "batch heads source size"]
    bias: Tensor | None = None
    lengths: Tensor | None = None
    memory_lengths: Tensor | None = None
    causal: bool = False

    def scores(self) -> Float[Tensor, "batch heads time source"]:
        """l[t, s] = q_t . k_s / sqrt(D) + bias[t, s], in float32 or better, of seen and unseen pairs alike.

        What is not finite is taken out before the matrix product, whose gradient it would spoil everywhere, and leaves
        NaN in its own row or column.
        """
        (query, key), _ = computing_precision(query=self.query, key=self.key)
        finite, finite_key = query.isfinite().all(-1, keepdim=True), key.isfinite().all(-1, keepdim=True)
        with torch.autocast(query.device.type, enabled=False):
            query = torch.where(finite, query, 0) / math.sqrt(query.shape[3])
            scores = query @ torch.where(finite_key, key, 0).transpose(2, 3)
            scores = scores.masked_fill(~(finite & finite_key.transpose(2, 3)), torch.nan)
            return scores if self.bias is None else scores + self.bias

    def soft(self, values: Float[Tensor, "batch heads source size"], return_weights: bool = False) -> Any:
        """What softmax attention reads, and its weights if wanted."""
        return softmax_attention(
            self.query,
            self.key,
            values,
            lengths=self.lengths,
            memory_lengths=self.memory_lengths,
            causal=self.causal,
            mask=self.bias,
            return_weights=return_weights,
        )


@dataclass(frozen=True)
class Choice:
    """How one value is chosen for each query (the Discrete Transformer paper, section 4).

    Args:
        temperature: of the relaxed draws in training; the paper's is 1.
        straight_through: read one value in training, too, and let the gradient of the relaxed weights through.
    """

    temperature: float = 1.0
    straight_through: bool = False

    def read(
        self, lookup: Lookup, values: Float[Tensor, "batch heads source size"], sample: bool
    ) -> Float[Tensor, "batch heads time size"]:
        """The readings. Without ``sample`` one row is gathered for each; no weights are made."""
        readings: Tensor = self._read(lookup, values, sample, return_weights=False)[0]
        return readings

    def read_with_weights(
        self, lookup: Lookup, values: Float[Tensor, "batch heads source size"], sample: bool
    ) -> tuple[Float[Tensor, "batch heads time size"], Float[Tensor, "batch heads time source"]]:
        """The readings, and the weights with which they were read: a draw, or one-hot at the largest score."""
        readings, _, weights = self._read(lookup, values, sample, return_weights=True)
        return readings, weights.to(readings.dtype)

    def _read(self, lookup: Lookup, values: Tensor, sample: bool, return_weights: bool) -> Any:
        (values,), dtype = computing_precision(values=values)
        attention: Any = hard_attention  # typed by whether weights are asked for, which here is not known
        readings, *rest = attention(
            lookup.scores(),
            values,
            self.temperature,
            sample=sample,
            straight_through=self.straight_through,
            causal=lookup.causal,
            lengths=lookup.lengths,
            memory_lengths=lookup.memory_lengths,
            return_weights=return_weights,
        )
        return readings.to(dtype), *rest

    def explain(self, lookup: Lookup, values: Tensor) -> Explanation:
        """The choices that evaluation makes, and the probabilities from which training draws."""
        _, weights = self.read_with_weights(lookup, values, sample=False)
        _, probabilities = lookup.soft(values, return_weights=True)
        return Explanation("hard", weights, details={"probabilities": probabilities.transpose(1, 2)})
