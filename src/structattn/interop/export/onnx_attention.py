"""Attention in operations that ONNX has: softmax, hard and Gaussian heads over given keys and values.

Legend: B batch, H heads, N queries, S keys, D size of a head. Tests compare this with the layers
in evaluation mode.
"""

import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from structattn.attention.gaussian import CrossGaussianAttention, GaussianAttention
from structattn.attention.hard import CrossHardAttention, HardAttention
from structattn.attention.mixed_heads import MixedHeads
from structattn.attention.positions import AlibiPositions, RotaryPositions
from structattn.attention.projections import concatenate_heads, split_heads
from structattn.attention.softmax import CrossSoftmaxAttention, SoftmaxAttention
from structattn.operators.gaussian_attention import Gaussians


class ScorePositions(nn.Module):
    """Rotary positions and ALiBi, for queries and keys at any positions."""

    def __init__(self, positions: Any) -> None:
        super().__init__()
        self.positions = positions

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """Rotate queries or keys (B, H, N, D) at positions (N,), if positions are rotary."""
        if not isinstance(self.positions, RotaryPositions):
            return x
        return self.positions.rotated(x, self.positions.table.to(x.dtype).index_select(1, at))

    def bias(self, at: Tensor, keys_at: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the bias (1, H, N, S) of ALiBi; None for other positions."""
        if not isinstance(self.positions, AlibiPositions):
            return None
        return self.positions.bias(at[:, None] - keys_at, dtype)


def scored_heads(layer: nn.Module, query: Tensor, memory: list[Tensor], bias: Tensor | None, visible: Tensor) -> Tensor:
    """Return the heads of softmax or hard attention (B, H, N, D).

    Args:
        layer: decides which of both.
        query: (B, H, N, D).
        memory: keys and values (B, H, S, D).
        bias: added to the scores.
        visible: true for visible keys, (B or 1, 1, N, S).
    """
    key, value = memory
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-1, -2)
    scores = (scores if bias is None else scores + bias).masked_fill(~visible, -torch.inf)
    if not isinstance(layer, HardAttention | CrossHardAttention):
        return torch.softmax(scores, -1) @ value
    chosen = scores.argmax(-1, keepdim=True)  # in ONNX, the first among equals
    return value.gather(2, chosen.expand(-1, -1, -1, value.shape[-1]))


def gaussian_heads(gaussians: Gaussians, value: Tensor, at: Tensor, visible: Tensor) -> Tensor:
    """Return the Gaussian heads (B, H, N, D) of queries at positions (N,), over all values (B, H, S, D)."""
    query = at.double()[None]
    whole = torch.floor(gaussians.ratio * query)
    rest = gaussians.ratio * query - whole + torch.tensor(gaussians.offsets, dtype=torch.float64)[:, None]
    rest = torch.floor(rest) if gaussians.floor else rest
    from_whole = torch.arange(value.shape[2])[None, None] - whole.long()[..., None]  # (1, N, S)
    middle = torch.floor(rest + 0.5).long()[..., None]
    inside = (from_whole - middle).abs() <= gaussians.radius(value.dtype)
    if gaussians.kernel == "index":
        weights = inside.to(value.dtype)
    else:
        distance = (from_whole.to(value.dtype) - rest.to(value.dtype)[..., None]) / gaussians.sigma
        weights = (-0.5 * distance * distance).exp() / (gaussians.sigma * math.sqrt(2 * math.pi))
    weights = torch.where(inside[None] & visible, weights[None], 0.0)
    return weights @ value


class Queries(NamedTuple):
    """Positions and masks of the queries of a call.

    Args:
        at: the position of each query, (N,).
        visible: true for visible keys, (B or 1, 1, N, S).
    """

    at: Tensor
    visible: Tensor


class SelfAttention(nn.Module):
    """Self-attention that caches keys and values; of Gaussian heads the values alone, then those of learned heads."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.mixed: MixedHeads | None = getattr(layer, "heads", None)
        self.scored: Any = layer if self.mixed is None else self.mixed.learned
        self.positions = ScorePositions(getattr(self.scored, "positions", None))
        learned = () if self.scored is None else ("learned_key", "learned_value")
        self.parts = ("key", "value") if self.mixed is None else ("value", *learned)

    def shapes(self) -> list[tuple[int, int]]:
        """Return heads and size of each tensor."""
        if self.mixed is None:
            return [(self.layer.num_heads, self.layer.size)] * 2
        learned = [] if self.scored is None else [self.scored.num_heads] * 2
        return [(heads, self.mixed.size) for heads in (len(self.mixed.gaussians.offsets), *learned)]

    def step(self, x: Tensor, state: tuple[list[Tensor], Queries]) -> tuple[Tensor, list[Tensor]]:
        """Return the output (B, N, d) and the tensors with the new positions, given those before and the queries."""
        past, queries = state
        query: Tensor | None
        if self.mixed is None:
            query, *new = split_heads(self.layer.projection(x), self.layer.num_heads, parts=3)
        else:
            query, new = _mixed_query(self.mixed, x), _mixed_tensors(self.mixed, x)
        if query is not None:
            query, new[-2] = self.positions.rotate(query, queries.at), self.positions.rotate(new[-2], queries.at)
        present = [torch.cat(pair, dim=2) for pair in zip(past, new, strict=True)]
        return self._output(query, present, queries), present

    def _output(self, query: Tensor | None, tensors: list[Tensor], queries: Queries) -> Tensor:
        heads = [] if self.mixed is None else [gaussian_heads(self.mixed.gaussians, tensors[0], *queries)]
        if query is not None:
            bias = self.positions.bias(queries.at, torch.arange(tensors[0].shape[2]), query.dtype)
            heads.append(scored_heads(self.scored, query, tensors[-2:], bias, queries.visible))
        output: Tensor = self.layer.output(concatenate_heads(torch.cat(heads, dim=1)))
        return output


class CrossAttention(SelfAttention):
    """Cross-attention to tensors that are computed once from the memory."""

    def project(self, memory: Tensor) -> list[Tensor]:
        """Return the tensors of the memory (B, H, S, D)."""
        if self.mixed is not None:
            return _mixed_tensors(self.mixed, memory)
        return list(split_heads(self.layer.memory(memory), self.layer.num_heads, parts=2))

    def forward(self, x: Tensor, memory: list[Tensor], queries: Queries) -> Tensor:
        """Return the output (B, N, d)."""
        if self.mixed is not None:
            return self._output(_mixed_query(self.mixed, x), memory, queries)
        (query,) = split_heads(self.layer.query(x), self.layer.num_heads)
        return self._output(query, memory, queries)


def _mixed_query(heads: MixedHeads, x: Tensor) -> Tensor | None:
    return None if heads.learned is None else heads.learned.queries(x)


def _mixed_tensors(heads: MixedHeads, x: Tensor) -> list[Tensor]:
    hard, soft = heads.values(x)
    return [hard] if heads.learned is None else [hard, heads.learned.keys(x), soft]


SELF_ATTENTION: Final = SoftmaxAttention, HardAttention, GaussianAttention
CROSS_ATTENTION: Final = CrossSoftmaxAttention, CrossHardAttention, CrossGaussianAttention
"""The layers that have a graph."""
