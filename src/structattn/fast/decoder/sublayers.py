"""The sublayers that the kernel has: their weights, the state of a decoder, and what attention reads in a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from structattn.attention import (
    CrossGaussianAttention,
    CrossHardAttention,
    CrossSoftmaxAttention,
    GaussianAttention,
    HardAttention,
    SoftmaxAttention,
)
from structattn.attention.cache import KeyValueCache
from structattn.attention.hard import HardSelection
from structattn.attention.heads import SoftmaxSelection
from structattn.attention.positions.biases import AlibiPositions
from structattn.attention.positions.rotary import RotaryPositions
from structattn.attention.projections import InputProjection, OutputProjection
from structattn.fast.decoder.kernel import CachedRows, Kind, Linear, Memory, PackedLayers, Rotation, Sublayer
from structattn.models.block import FeedForward, Residual
from structattn.operators import gaussian_weights
from structattn.operators.gaussian_attention import Gaussians
from structattn.support.shapes import Float, Int

Made = TypeVar("Made")

KINDS: dict[type, Kind] = {
    SoftmaxAttention: "softmax",
    HardAttention: "hard",
    GaussianAttention: "gaussian",
    CrossSoftmaxAttention: "cross_softmax",
    CrossHardAttention: "cross_hard",
    CrossGaussianAttention: "cross_gaussian",
    FeedForward: "feedforward",
}


# Not their subclasses, such as parametrized modules.
LINEAR: set[type] = {nn.Linear, InputProjection, OutputProjection}


def kind_of(part: Residual) -> Kind | None:
    """Return the kind of a sublayer; None where the kernel does not have it.

    The kernel has layer norms with bias, rotary positions and ALiBi, but no learned beside hard-coded heads, and no
    subclasses of linear layers or selections.
    """
    if type(part) is not Residual or type(part.norm) is not nn.LayerNorm or part.norm.bias is None:
        return None
    if isinstance(part.layer, GaussianAttention | CrossGaussianAttention) and part.layer.heads.learned is not None:
        return None
    if type(getattr(part.layer, "positions", None)) not in (type(None), RotaryPositions, AlibiPositions):
        return None
    if type(getattr(part.layer, "selection", None)) not in (type(None), SoftmaxSelection, HardSelection):
        return None
    kind = KINDS.get(type(part.layer))
    return kind if kind is not None and {*map(type, _linears(part.layer, kind))} <= LINEAR else None


def is_cross(kind: Kind) -> bool:
    """Return whether a sublayer attends to a memory."""
    return kind.startswith("cross")


def num_cached(kind: Kind) -> int:
    """Return how many vectors of each position later positions attend to."""
    return {"softmax": 2, "hard": 2, "gaussian": 1}.get(kind, 0)


def weights_of(part: Any, kind: Kind) -> Sublayer:
    """Return the weights of a sublayer that the kernel has."""
    norm, (*first, last) = (part.norm.weight, part.norm.bias), _linears(part.layer, kind)
    num_heads = 1 if kind == "feedforward" else part.layer.num_heads
    return Sublayer(kind, linear_of(first[0]) if first else None, linear_of(last), norm, num_heads)


def _linears(layer: Any, kind: Kind) -> tuple[Any, ...]:
    """Return the first linear layer, if the kernel needs it in each step, and the last one."""
    if kind == "feedforward":
        return layer.hidden, layer.output
    if kind == "gaussian":
        return layer.heads.value, layer.output
    if kind == "cross_gaussian":
        return (layer.output,)
    return layer.query if is_cross(kind) else layer.projection, layer.output


def linear_of(module: nn.Linear) -> Linear:
    """Return weight and bias."""
    return module.weight, module.bias


@dataclass(frozen=True)
class Run:
    """Sublayers that follow each other: any number in one kernel call, or one as a module.

    Args:
        parts: the sublayers with their kinds.
        packed: the weights for the kernel; None for a module.
    """

    parts: tuple[tuple[Residual, Kind | None], ...]
    packed: PackedLayers | None


@dataclass(frozen=True)
class FastWeights:
    """The weights of a decoder in the kernel's layout, a copy.

    Args:
        packed: those of all sublayers in the kernel, and of the output layer.
        runs: the sublayers of the decoder.
    """

    packed: PackedLayers
    runs: tuple[Run, ...]

    @property
    def d_model(self) -> int:
        """The width of the hidden states."""
        return len(self.packed.sublayers[0].norm[0])

    @property
    def in_kernel(self) -> list[tuple[Any, Kind]]:
        """The sublayers in the kernel, with their kinds."""
        return [(part, kind) for run in self.runs for part, kind in run.parts if kind is not None]


@dataclass(frozen=True)
class FastState:
    """The number of positions so far, their keys and values in all layers, and the memory: an immutable value.

    Args:
        weights: with which the steps are computed.
        position: the number of positions.
        cache: one tensor with keys and values, or values alone, of each self-attention in the kernel; None without any.
        memory_rows: keys, if any, and values of each cross-attention in the kernel.
        memory: which of their rows belong to each member of the batch.
        modules: the states of the sublayers that are not in the kernel; None for those without a state.
    """

    weights: FastWeights
    position: int
    cache: KeyValueCache | None
    memory_rows: tuple[tuple[Tensor, ...], ...]
    memory: Memory
    modules: tuple[Any, ...] = ()

    def select(self, indices: Int[Tensor, " selected"]) -> FastState:
        """Return the states of some members of the batch, in a new order."""
        lengths = None if self.memory.lengths is None else self.memory.lengths.index_select(0, indices)
        memory = Memory(self.memory.first.index_select(0, indices), self.memory.size, lengths)
        cache = None if self.cache is None else self.cache.select(indices)
        modules = tuple(None if state is None else state.select(indices) for state in self.modules)
        return replace(self, cache=cache, memory=memory, modules=modules)


@dataclass(frozen=True)
class Step:
    """What attention in the kernel reads in the step for the last position of a state.

    Weights, biases and rotations are computed once for all layers that have the same.
    """

    state: FastState
    known: dict[Hashable, Any] = field(default_factory=dict)

    def cached_rows(self, parts: list[tuple[Any, Kind]]) -> Iterator[CachedRows | None]:
        """Return what each sublayer attends to."""
        own = iter(() if self.state.cache is None else self.state.cache.rows[0].unbind(1))
        memories = iter(self.state.memory_rows)
        for part, kind in parts:
            if kind == "feedforward":
                yield None
            elif kind in ("gaussian", "cross_gaussian"):
                values = next(memories)[-1] if is_cross(kind) else next(own)
                yield CachedRows(None, values, self._weights(part.layer.heads.gaussians, is_cross(kind)))
            elif is_cross(kind):
                keys, values = next(memories)
                yield CachedRows(keys, values)
            else:
                yield CachedRows(next(own), next(own), *self._positions(part.layer.positions, part.layer.num_heads))

    def _weights(self, gaussians: Gaussians, across: bool) -> Float[Tensor, "heads positions"]:
        """Return the weights of the positions so far, or of those of a memory."""
        keys, first = (self.state.memory.size, self.state.position) if across else (self._past, self._past - 1)

        def make() -> Tensor:
            weights = gaussian_weights(**gaussians.options, queries=1, keys=keys, first=first)
            return weights[:, 0].contiguous()

        return self._once((gaussians, across), make)

    def _positions(self, positions: Any, num_heads: int) -> tuple[Tensor | None, Rotation | None]:
        """Return what is added to the scores, and the rotation of queries and keys."""
        if isinstance(positions, RotaryPositions):
            key = (RotaryPositions, positions.size, positions.base, positions.layout)
            return None, self._once(key, lambda: self._rotation(positions))
        if isinstance(positions, AlibiPositions):
            of_heads = (AlibiPositions, num_heads, positions.variant)
            return self._once(of_heads, lambda: self._bias(positions, num_heads)), None
        return None, None

    def _rotation(self, positions: RotaryPositions) -> Rotation:
        angles = positions.rotation(self.state.position).to(torch.float32).contiguous()
        return Rotation(angles, positions.layout == "interleaved")

    def _bias(self, positions: AlibiPositions, num_heads: int) -> Float[Tensor, "heads positions"]:
        of_heads = positions.table.new_empty(1, num_heads, 1, 1, dtype=torch.float32)  # shapes count alone
        query, keys = of_heads, of_heads.expand(-1, -1, self._past, -1)
        bias: Tensor = positions(query, keys, self._past - 1)[2]
        return bias[0, :, 0].contiguous()

    @property
    def _past(self) -> int:
        return 0 if self.state.cache is None else self.state.cache.num_steps

    def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key not in self.known:
            self.known[key] = make()
        made: Made = self.known[key]
        return made
