"""Attention in operations that ONNX has: softmax, hard and Gaussian heads over given keys and values.

Legend: B batch, H heads, N queries, S keys, D size of a head. Tests compare this with the layers
in evaluation mode.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from structattn.attention.gaussian import CrossGaussianAttention, GaussianAttention
from structattn.attention.hard import CrossHardAttention, HardAttention
from structattn.attention.mixed_heads import MixedHeads
from structattn.attention.positions import AlibiPositions, RotaryPositions
from structattn.attention.softmax import CrossSoftmaxAttention, SoftmaxAttention
from structattn.operators.gaussian_attention import Gaussians


class ScorePositions(nn.Module):
    """Rotary positions and ALiBi, for queries and keys at any positions.

    Args:
        positions: of a layer; None: no such positions.
    """

    def __init__(self, positions: Any) -> None:
        super().__init__()
        self.positions = positions

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """Rotate queries or keys (B, H, N, D) at positions (N,), if positions are rotary."""
        if not isinstance(self.positions, RotaryPositions):
            return x
        half = x.shape[-1] // 2
        interleaved = self.positions.layout == "interleaved"
        pairs = x.view(*x.shape[:-1], *((half, 2) if interleaved else (2, half)))
        a, b = pairs.unbind(-1 if interleaved else -2)
        cos, sin = self.positions.table.to(x.dtype).index_select(1, at).unbind(0)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1 if interleaved else -2).flatten(-2)

    def bias(self, at: Tensor, keys_at: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the bias (1, H, N, S) of ALiBi; None for other positions."""
        if not isinstance(self.positions, AlibiPositions):
            return None
        offset = at[:, None] - keys_at
        distance = offset.abs().to(dtype)
        if self.positions.variant == "shifted":
            distance = torch.where(offset > 0, distance - 0.5, distance)
        return -(self.positions.table.to(dtype)[:, None, None] * distance)[None]


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
    """Softmax or hard self-attention; caches keys and values.

    Args:
        layer: of the model.
    """

    parts = ("key", "value")

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer, self.positions = layer, ScorePositions(layer.positions)

    def shapes(self) -> list[tuple[int, int]]:
        """Return heads and size of each cached tensor."""
        projection = self.layer.projection
        return [(projection.num_heads, projection.size)] * 2

    def forward(self, x: Tensor, past: list[Tensor], queries: Queries) -> tuple[Tensor, list[Tensor]]:
        """Return the output (B, N, d) and the tensors with the new positions."""
        query, key, value = self.layer.projection(x)
        query, key = self.positions.rotate(query, queries.at), self.positions.rotate(key, queries.at)
        present = [torch.cat([old, new], dim=2) for old, new in zip(past, (key, value), strict=True)]
        bias = self.positions.bias(queries.at, torch.arange(present[0].shape[2]), x.dtype)
        heads = scored_heads(self.layer, query, present, bias, queries.visible)
        return self.layer.output(heads), present


class GaussianSelfAttention(nn.Module):
    """Gaussian self-attention, also with learned heads, whose keys are cached, too.

    Args:
        layer: of the model.
    """

    def __init__(self, layer: GaussianAttention) -> None:
        super().__init__()
        self.layer = layer
        learned = layer.heads.learned
        self.positions = ScorePositions(None if learned is None else learned.positions)
        self.parts = ("value",) if learned is None else ("value", "learned_key", "learned_value")

    def shapes(self) -> list[tuple[int, int]]:
        """Return heads and size of each cached tensor."""
        return _mixed_shapes(self.layer.heads)

    def forward(self, x: Tensor, past: list[Tensor], queries: Queries) -> tuple[Tensor, list[Tensor]]:
        """Return the output (B, N, d) and the tensors with the new positions."""
        new = _mixed_tensors(self.layer.heads, x)
        if len(new) > 1:
            new[1] = self.positions.rotate(new[1], queries.at)
        present = [torch.cat(pair, dim=2) for pair in zip(past, new, strict=True)]
        heads = _mixed_heads(self.layer.heads, x, present, queries, self.positions)
        return self.layer.output(heads), present


class CrossAttention(nn.Module):
    """Softmax or hard cross-attention.

    Args:
        layer: of the model.
    """

    parts = ("key", "value")

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def shapes(self) -> list[tuple[int, int]]:
        """Return heads and size of each tensor of the memory."""
        return [(self.layer.query.num_heads, self.layer.query.size)] * 2

    def project(self, memory: Tensor) -> list[Tensor]:
        """Return keys and values of the memory (B, H, S, D)."""
        return list(self.layer.memory(memory))

    def forward(self, x: Tensor, memory: list[Tensor], queries: Queries) -> Tensor:
        """Return the output (B, N, d)."""
        (query,) = self.layer.query(x)
        output: Tensor = self.layer.output(scored_heads(self.layer, query, memory, None, queries.visible))
        return output


class GaussianCrossAttention(nn.Module):
    """Gaussian cross-attention, also with learned heads.

    Args:
        layer: of the model.
    """

    def __init__(self, layer: CrossGaussianAttention) -> None:
        super().__init__()
        self.layer = layer
        self.parts = ("value",) if layer.heads.learned is None else ("value", "learned_key", "learned_value")

    def shapes(self) -> list[tuple[int, int]]:
        """Return heads and size of each tensor of the memory."""
        return _mixed_shapes(self.layer.heads)

    def project(self, memory: Tensor) -> list[Tensor]:
        """Return the values of the memory, and the keys and values of learned heads."""
        return _mixed_tensors(self.layer.heads, memory)

    def forward(self, x: Tensor, memory: list[Tensor], queries: Queries) -> Tensor:
        """Return the output (B, N, d)."""
        heads = _mixed_heads(self.layer.heads, x, memory, queries, ScorePositions(None))
        output: Tensor = self.layer.output(heads)
        return output


def _mixed_shapes(heads: MixedHeads) -> list[tuple[int, int]]:
    fixed, size = len(heads.gaussians.offsets), heads.value.size
    learned = [] if heads.learned is None else [(heads.learned.num_heads, size)] * 2
    return [(fixed, size), *learned]


def _mixed_tensors(heads: MixedHeads, x: Tensor) -> list[Tensor]:
    hard, soft = heads.values(x)
    return [hard] if heads.learned is None else [hard, heads.learned.keys(x), soft]


def _mixed_heads(
    heads: MixedHeads, x: Tensor, tensors: list[Tensor], queries: Queries, positions: ScorePositions
) -> Tensor:
    found = gaussian_heads(heads.gaussians, tensors[0], queries.at, queries.visible)
    if heads.learned is None:
        return found
    query = positions.rotate(heads.learned.queries(x), queries.at)
    bias = positions.bias(queries.at, torch.arange(tensors[0].shape[2]), x.dtype)
    return torch.cat([found, scored_heads(heads.learned, query, tensors[1:], bias, queries.visible)], dim=1)


SELF_ATTENTION: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {SoftmaxAttention: SelfAttention, HardAttention: SelfAttention, GaussianAttention: GaussianSelfAttention}
)
CROSS_ATTENTION: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {
        CrossSoftmaxAttention: CrossAttention,
        CrossHardAttention: CrossAttention,
        CrossGaussianAttention: GaussianCrossAttention,
    }
)
"""Class of a layer -> the class that computes it over explicit tensors."""
