"""Layers of hard-coded Gaussian heads, optionally combined with learned heads."""

from typing import Any

import torch
from torch import Tensor, nn

from structattn.attention.cache import Cache, cached_softmax_attention
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, apply_positions, split_heads
from structattn.operators import gaussian_attention, gaussian_weights, softmax_attention
from structattn.operators.common.checks import head_size
from structattn.operators.common.dropout import checked_rate
from structattn.operators.gaussian_attention import Gaussians
from structattn.support.shapes import Float


class LearnedHeads(nn.Module):
    """Scaled dot-product heads, for values that the layer projects: 2 d L size parameters for L heads, no biases.

    Args:
        d_model: d, of the inputs of queries and keys.
        num_heads: L.
        size: of a head.
        dropout: rate at which weights are dropped in training.
        positions: acts on the scores; a module of this layer alone.
        factory: device and dtype.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        size: int,
        dropout: float,
        positions: ScorePositions | None = None,
        **factory: Any,
    ) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, checked_rate(dropout)
        self.query = nn.Linear(d_model, num_heads * size, bias=False, **factory)
        self.key = nn.Linear(d_model, num_heads * size, bias=False, **factory)
        self.positions = positions

    def queries(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch heads time size"]:
        """Project ``x`` to queries."""
        return split_heads(self.query(x), self.num_heads)[0]

    def keys(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch heads time size"]:
        """Project ``x`` to keys."""
        return split_heads(self.key(x), self.num_heads)[0]

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        value: Float[Tensor, "batch heads source size"],
        **options: Any,
    ) -> Any:
        """Return the heads' outputs (B, L, T, size) for queries of ``x`` and keys of ``memory``.

        ``options`` are those of ``softmax_attention``; one of them asks for the weights, too.
        """
        query, key, bias = apply_positions(self.positions, self.queries(x), self.keys(memory))
        return softmax_attention(query, key, value, mask=bias, dropout=self._active_dropout(), **options)

    def attend_cached(
        self, query: Float[Tensor, "batch heads 1 size"], cache: Cache
    ) -> Float[Tensor, "batch heads 1 size"]:
        """Return the heads' outputs for one query per member and cached keys and values."""
        return cached_softmax_attention(query, cache, self._active_dropout(), self.positions)

    def _active_dropout(self) -> float:
        return self.dropout if self.training else 0.0


class MixedHeads(nn.Module):
    """All heads of a layer, the hard-coded ones first, with values from one projection W_V without bias.

    All heads have the same size: d^2 parameters, and 2 d^2 / H more for each learned head.

    Args:
        d_model: d.
        gaussians: the hard-coded heads, at least one.
        learned: the number of learned heads; the number of all heads, H, must divide d.
        dropout: rate at which weights of learned heads are dropped in training.
        positions: acts on the scores of the learned heads.
        factory: device and dtype.

    Raises:
        ValueError: no hard-coded head, a negative number of learned ones, or H does not divide d.
    """

    def __init__(
        self,
        d_model: int,
        gaussians: Gaussians,
        learned: int,
        dropout: float = 0.0,
        positions: ScorePositions | None = None,
        **factory: Any,
    ) -> None:
        super().__init__()
        if not gaussians.offsets or learned < 0:
            raise ValueError(
                f"offsets={gaussians.offsets} and num_learned_heads={learned}; expected one offset per hard-coded "
                "head, at least one, and num_learned_heads >= 0"
            )
        self.gaussians = gaussians
        self.num_heads = len(gaussians.offsets) + learned
        self.size = head_size(d_model, self.num_heads)
        self.value = InputProjection(d_model, d_model, bias=False, **factory)
        options = dropout, positions
        self.learned = LearnedHeads(d_model, learned, self.size, *options, **factory) if learned else None

    def values(
        self, memory: Float[Tensor, "batch source d_model"]
    ) -> tuple[Float[Tensor, "batch hard source size"], Float[Tensor, "batch learned source size"]]:
        """Return the values of the hard-coded heads and those of the learned heads."""
        count = len(self.gaussians.offsets)
        (heads,) = split_heads(self.value(memory), self.num_heads)
        return heads[:, :count], heads[:, count:]

    def forward(
        self, x: Float[Tensor, "batch time d_model"], memory: Float[Tensor, "batch source d_model"], **lengths: Any
    ) -> Float[Tensor, "batch heads time size"]:
        """Return the outputs of all heads; ``lengths`` are lengths and memory_lengths, as for the operators."""
        hard, soft = self.values(memory)
        outputs = gaussian_attention(hard, **self.gaussians.options, queries=x.shape[1], **lengths)
        if self.learned is None:
            return outputs
        return torch.cat([outputs, self.learned(x, memory, soft, causal=self.gaussians.causal, **lengths)], dim=1)

    def attend(
        self, x: Float[Tensor, "batch time d_model"], memory: Float[Tensor, "batch source d_model"], **lengths: Any
    ) -> tuple[Float[Tensor, "batch heads time size"], Float[Tensor, "batch heads time source"]]:
        """Return the outputs and the weights; those of learned heads are before dropout and have gradients."""
        hard, soft = self.values(memory)
        outputs = gaussian_attention(hard, **self.gaussians.options, queries=x.shape[1], **lengths)
        weights = self._hard_coded_weights(x, memory, **lengths)
        if self.learned is None:
            return outputs, weights
        options = {"causal": self.gaussians.causal, "return_weights": True}
        more, learned_weights = self.learned(x, memory, soft, **options, **lengths)
        return torch.cat([outputs, more], dim=1), torch.cat([weights, learned_weights.to(weights.dtype)], dim=1)

    def _hard_coded_weights(self, x: Tensor, memory: Tensor, **lengths: Any) -> Tensor:
        dtype = torch.promote_types(memory.dtype, torch.float32)
        shape: dict[str, Any] = {"queries": x.shape[1], "keys": memory.shape[1], "dtype": dtype, "device": x.device}
        weights = gaussian_weights(**self.gaussians.options, **shape, **lengths)
        return weights.expand(x.shape[0], *weights.shape[-3:])
