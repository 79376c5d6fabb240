"""Scores and selection of hard attention, shared by all layers that use it."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention.protocols import Explanation
from structattn.operators import hard_attention, softmax_attention
from structattn.operators.common.checks import computing_precision, without_autocast


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

    def softmax_attention(self, values: Float[Tensor, "batch heads source size"], return_weights: bool = False) -> Any:
        """Return the outputs of softmax attention, and its weights on request."""
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
class HardSelection:
    """The rule that selects one value for each query (the Discrete Transformer paper, section 4).

    Args:
        temperature: of the Gumbel-softmax samples in training; the paper's is 1.
        straight_through: use the one-hot sample in training, too, with the gradient of the relaxed weights.
        noise: whether samples have Gumbel noise.
    """

    temperature: float = 1.0
    straight_through: bool = False
    noise: bool = True

    def attend(
        self, inputs: AttentionInputs, values: Float[Tensor, "batch heads source size"], sample: bool
    ) -> Float[Tensor, "batch heads time size"]:
        """Return the selected values. Without ``sample`` they are gathered, and no weights are computed."""
        outputs: Tensor = self._attend(inputs, values, sample, return_weights=False)[0]
        return outputs

    def attend_with_weights(
        self, inputs: AttentionInputs, values: Float[Tensor, "batch heads source size"], sample: bool
    ) -> tuple[Float[Tensor, "batch heads time size"], Float[Tensor, "batch heads time source"]]:
        """Return the selected values and the weights: a sample, or one-hot at the largest score."""
        outputs, _, weights = self._attend(inputs, values, sample, return_weights=True)
        return outputs, weights.to(outputs.dtype)

    def _attend(self, inputs: AttentionInputs, values: Tensor, sample: bool, return_weights: bool) -> Any:
        (values,), dtype = computing_precision(values=values)
        attention: Any = hard_attention  # its overloads need return_weights as a literal
        outputs, *rest = attention(
            inputs.scores(),
            values,
            self.temperature,
            sample=sample,
            straight_through=self.straight_through,
            noise=self.noise,
            causal=inputs.causal,
            lengths=inputs.lengths,
            memory_lengths=inputs.memory_lengths,
            return_weights=return_weights,
        )
        return outputs.to(dtype), *rest

    def explain(self, inputs: AttentionInputs, values: Tensor) -> Explanation:
        """Return the selections of evaluation, and the probabilities from which training samples."""
        _, weights = self.attend_with_weights(inputs, values, sample=False)
        _, probabilities = inputs.softmax_attention(values, return_weights=True)
        return Explanation("hard", weights, details={"probabilities": probabilities.transpose(1, 2)})


def set_temperature(module: nn.Module, temperature: float) -> None:
    """Set the temperature of all hard attention in a module."""
    for layer in module.modules():
        selection = getattr(layer, "selection", None)
        if isinstance(selection, HardSelection):
            layer.selection = replace(selection, temperature=temperature)  # type: ignore[assignment]  # no tensor
