"""Self- and cross-attention layers over explicit tensors of keys and values, as graphs of ONNX need them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from structattn.attention.gaussian import CrossGaussianAttention, GaussianAttention
from structattn.attention.hard import CrossHardAttention, HardAttention
from structattn.attention.mixed_heads import MixedHeads
from structattn.attention.softmax import CrossSoftmaxAttention, SoftmaxAttention
from structattn.interop.export.onnx.heads import ScorePositions, gaussian_heads, scored_heads


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
