"""Attention in operations that ONNX has: softmax, hard and Gaussian heads over given keys and values.

Legend: B batch, H heads, N queries, S keys, D size of a head. Tests compare this with the layers
in evaluation mode.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from structattn.attention.hard import CrossHardAttention, HardAttention
from structattn.attention.positions import AlibiPositions, RotaryPositions
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
        cos, sin = self.positions.rotations.to(x.dtype).index_select(1, at).unbind(0)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1 if interleaved else -2).flatten(-2)

    def bias(self, at: Tensor, keys_at: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the bias (1, H, N, S) of ALiBi; None for other positions."""
        if not isinstance(self.positions, AlibiPositions):
            return None
        offset = at[:, None] - keys_at
        distance = offset.abs().to(dtype)
        if self.positions.variant == "shifted":
            distance = torch.where(offset > 0, distance - 0.5, distance)
        return -(self.positions.slopes.to(dtype)[:, None, None] * distance)[None]


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
