"""One step of all layers of a transformer decoder in one call of a kernel, with weights that are laid out once.

The definition is ``Layers.step`` of blocks of self-attention and cross-attention, each softmax attention, hard or
hard-coded, and feed-forward sublayers; ``Kind`` names them. Not differentiable; on a CPU, in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from structattn.operators.common.kernels import has_kernel, kernel_module
from structattn.support.shapes import Float32, Int

Linear = tuple[Float32[Tensor, "outputs inputs"], Float32[Tensor, " outputs"] | None]  # weight and bias
Norm = tuple[Float32[Tensor, " d_model"], Float32[Tensor, " d_model"]]  # scale and shift
Kind = Literal["softmax", "hard", "gaussian", "cross_softmax", "cross_hard", "cross_gaussian", "feedforward"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Sublayer:
    """A sublayer with its residual connection and norm.

    Args:
        kind: softmax attention, hard or hard-coded attention to the positions so far or to the memory, or a
            feed-forward sublayer.
        first: to queries, keys and values ("softmax", "hard"), to values ("gaussian"), to queries ("cross_softmax",
            "cross_hard"), or to hidden units, before their relu ("feedforward"); None for "cross_gaussian".
        last: from the heads' outputs, or the hidden units.
        norm: scale and shift.
        num_heads: 1 for "feedforward".
    """

    kind: Kind
    first: Linear | None
    last: Linear
    norm: Norm
    num_heads: int = 1


@dataclass(frozen=True, eq=False)
class PackedLinear:
    """A linear layer in the memory layout of the kernel."""

    data: Tensor
    inputs: int
    outputs: int


@dataclass(frozen=True, eq=False)
class _PackedSublayer:
    kind: Kind
    first: PackedLinear | None
    last: PackedLinear
    norm: Norm
    num_heads: int


@dataclass(frozen=True, eq=False)
class PackedLayers:
    """The sublayers of all layers in the memory layout of the kernel.

    Args:
        pre_norm: whether norms stand before the sublayers; otherwise after the sums.
        output: the layer that follows them, for ``packed_linear``.
    """

    sublayers: tuple[_PackedSublayer, ...]
    pre_norm: bool
    epsilon: float
    output: PackedLinear


@dataclass(frozen=True, eq=False)
class Rotation:
    """The rotation of queries and keys at the new position; keys are cached as they are after it.

    Args:
        angles: cosines and sines of the angle of each pair of components.
        interleaved: whether pair i is components 2i and 2i + 1; otherwise i and i + size / 2.
    """

    angles: Float32[Tensor, "2 pair"]
    interleaved: bool


@dataclass(frozen=True, eq=False)
class CachedRows:
    """What a sublayer with attention reads, and writes to in the case of self-attention.

    Args:
        keys: None for hard-coded attention.
        values: at the same stride as the keys.
        weights: of each hard-coded head, or what is added to the scores of each other one, for the positions so far, or
            of the memory, from the first one on; None: nothing is added.
        rotation: of queries and keys in self-attention; None: none.
    """

    keys: Float32[Tensor, "stored d_model"] | None
    values: Float32[Tensor, "stored d_model"]
    weights: Float32[Tensor, "heads positions"] | None = None
    rotation: Rotation | None = None


@dataclass(frozen=True)
class Memory:
    """Which rows of the keys and values of memories belong to each of M hypotheses.

    Args:
        first: the first one; the others follow it.
        size: S, the number of rows of each memory.
        lengths: the number of rows that count for each hypothesis; None: all.
    """

    first: Int[Tensor, " rows"]
    size: int
    lengths: Int[Tensor, " rows"] | None


def has_decoder_kernel() -> bool:
    """Return whether the kernel was built."""
    return has_kernel("decoder_layers_float32")


def pack_linears(linears: Sequence[Linear]) -> tuple[PackedLinear, ...]:
    """Copy weights and biases, float32 on a CPU, into the layout of the kernel.

    They follow each other in memory, in huge pages where the system has them: products fetch the weights of the next
    layer in advance, if it is used next.
    """
    module, shapes = kernel_module(), [weight.shape for weight, _ in linears]
    ends = [0, *accumulate(module.packed_size_float32(*shape) for shape in shapes)]
    memory = torch.empty(ends[-1], dtype=torch.uint8, device="cpu")
    module.advise_huge_pages(memory.data_ptr(), len(memory))
    packed = []
    for linear, start, end in zip(linears, ends[:-1], ends[1:], strict=True):
        weight, bias = (None if each is None else each.detach().contiguous() for each in linear)
        assert weight is not None
        (outputs, inputs), data = weight.shape, memory[start:end]
        address = 0 if bias is None else bias.data_ptr()
        module.pack_float32(weight.data_ptr(), address, data.data_ptr(), outputs, inputs)
        packed.append(PackedLinear(data, inputs, outputs))
    return tuple(packed)


def packed_linear(x: Float32[Tensor, "rows inputs"], packed: PackedLinear) -> Float32[Tensor, "rows outputs"]:
    """Return x W^T + b, not differentiable. Cost: O(rows * inputs * outputs)."""
    x, y = x.contiguous(), x.new_empty(len(x), packed.outputs)
    addresses = x.data_ptr(), packed.data.data_ptr(), y.data_ptr()
    sizes = len(x), packed.outputs, packed.inputs
    kernel_module().packed_linear_float32(*addresses, *sizes, torch.get_num_threads())
    return y


def pack_sublayers(sublayers: Sequence[Sublayer], output: Linear, pre_norm: bool, epsilon: float) -> PackedLayers:
    """Lay out the weights of sublayers and of the output layer; they are copied. See ``PackedLayers``."""
    linears = [linear for each in sublayers for linear in (each.first, each.last) if linear is not None]
    *of_sublayers, packed_output = pack_linears([*linears, output])
    packed = iter(of_sublayers)
    in_order = tuple(
        _PackedSublayer(
            each.kind,
            None if each.first is None else next(packed),
            next(packed),
            (each.norm[0].detach().clone(), each.norm[1].detach().clone()),
            each.num_heads,
        )
        for each in sublayers
    )
    return PackedLayers(in_order, pre_norm, epsilon, packed_output)


def decoder_layers(
    packed: PackedLayers,
    x: Float32[Tensor, "rows d_model"],
    cached: Sequence[CachedRows | None],
    row_indices: Int[Tensor, "rows past"],
    memory: Memory,
) -> Float32[Tensor, "rows d_model"]:
    """Return the output of the last layer for one more position of each of M hypotheses, before a final norm.

    Cost: O(M (t + S) d + M d (d + f)) for each layer in step t. Hard-coded heads read only the positions from their
    first to their last weight that is not zero.

    Args:
        packed: the sublayers.
        x: the input of the first layer.
        cached: for each sublayer what it attends to; None for "feedforward". The rows of the new position are written.
        row_indices: the rows of the positions so far; the last column has the rows of the new one.
        memory: of cross-attention.

    Raises:
        IndexError: a row index is out of range.
        ValueError: a length is not from 0 to S, weights have another number of heads or positions, or a rotation has
            another number of pairs.
    """
    own, memories = (_least_rows(packed, cached, cross) for cross in (False, True))
    if own is None:
        row_indices = row_indices[:, :0]
    if memories is None:
        memory = Memory(torch.zeros_like(memory.first), 0, None)
    x = x.clone(memory_format=torch.contiguous_format)
    row_indices, first = row_indices.contiguous(), memory.first.contiguous()
    lengths = None if memory.lengths is None else memory.lengths.contiguous()
    past = row_indices.shape[1]
    fields = [
        _fields(sublayer, rows, memory.size if sublayer.kind.startswith("cross") else past)
        for sublayer, rows in zip(packed.sublayers, cached, strict=True)
    ]
    kernel_module().decoder_layers_float32(
        fields,
        x.data_ptr(),
        (*x.shape, past, memory.size),
        packed.pre_norm,
        packed.epsilon,
        row_indices.data_ptr(),
        own or 0,
        first.data_ptr(),
        memories or 0,
        0 if lengths is None else lengths.data_ptr(),
        torch.get_num_threads(),
    )
    return x


def _fields(sublayer: _PackedSublayer, rows: CachedRows | None, positions: int) -> tuple[int, ...]:
    """Return the sizes and addresses of a sublayer, in the order of ``Field`` in cpu_kernel.cpp."""
    first, last = sublayer.first, sublayer.last
    keys, values, weights = (None, None, None) if rows is None else (rows.keys, rows.values, rows.weights)
    if weights is not None and weights.shape != (sublayer.num_heads, positions):
        raise ValueError(f"weights have shape {tuple(weights.shape)}; expected ({sublayer.num_heads}, {positions})")
    rotation = None if rows is None else rows.rotation
    if rotation is not None and rotation.angles.shape != (2, last.inputs // sublayer.num_heads // 2):
        raise ValueError(f"the angles have shape {tuple(rotation.angles.shape)}; expected one for each pair in a head")
    return (
        KINDS.index(sublayer.kind),
        sublayer.num_heads,
        last.inputs,
        0 if first is None else first.data.data_ptr(),
        last.data.data_ptr(),
        sublayer.norm[0].data_ptr(),
        sublayer.norm[1].data_ptr(),
        0 if keys is None else keys.data_ptr(),
        0 if values is None else values.data_ptr(),
        0 if values is None else values.stride(0),
        0 if weights is None else weights.data_ptr(),
        0 if rotation is None else rotation.angles.data_ptr(),
        int(rotation is not None and rotation.interleaved),
    )


def _least_rows(packed: PackedLayers, cached: Sequence[CachedRows | None], cross: bool) -> int | None:
    """Return the number of rows to which all sublayers with cross-attention or self-attention attend; None without."""
    pairs = zip(packed.sublayers, cached, strict=True)
    counts = [len(rows.values) for each, rows in pairs if rows and each.kind.startswith("cross") == cross]
    return min(counts, default=None)
