"""One step of all layers of a transformer decoder in one call of a kernel, with weights that are laid out once.

The definition is ``Layers.step`` of blocks of softmax self-attention, softmax cross-attention and a feed-forward
sublayer. Not differentiable; float32 on a CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from structattn.operators.common.kernels import has_kernel, kernel_module

__all__ = ["LayerWeights", "Memory", "PackedLayers", "decoder_layers", "has_decoder_layers", "pack_layers"]

Linear = tuple[Float32[Tensor, "outputs inputs"], Float32[Tensor, " outputs"] | None]  # weight and bias
Norm = tuple[Float32[Tensor, " d_model"], Float32[Tensor, " d_model"]]  # scale and shift


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer.

    Args:
        own_projection: of self-attention, to queries, keys and values.
        own_output: of self-attention.
        own_norm: of self-attention; in the same way for the other two sublayers.
        cross_query: of cross-attention, to queries.
        cross_output: of cross-attention.
        cross_norm: of cross-attention.
        hidden: of the feed-forward sublayer, before its relu.
        output: of the feed-forward sublayer.
        feedforward_norm: of the feed-forward sublayer.
    """

    own_projection: Linear
    own_output: Linear
    own_norm: Norm
    cross_query: Linear
    cross_output: Linear
    cross_norm: Norm
    hidden: Linear
    output: Linear
    feedforward_norm: Norm


@dataclass(frozen=True, eq=False)
class PackedLayers:
    """The weights of all layers in the memory layout of the kernel.

    Args:
        tensors: of each layer, in the order of the kernel: packed weights, scales and shifts.
        d_ff: the number of hidden units.
        own_heads: the number of heads of self-attention.
        cross_heads: the number of heads of cross-attention.
        pre_norm: whether norms stand before the sublayers; otherwise after the sums.
        epsilon: of the norms.
    """

    tensors: list[list[Tensor]]
    d_ff: int
    own_heads: int
    cross_heads: int
    pre_norm: bool
    epsilon: float


@dataclass(frozen=True)
class Memory:
    """Keys and values of the memories, for each layer (N, d), and their rows for each hypothesis.

    Args:
        keys: of each layer, with rows at one stride.
        values: of each layer, with the same stride.
        row_indices: (M, S), from 0 to N - 1.
        lengths: the number of rows that count for each hypothesis; None: all.
    """

    keys: Sequence[Float32[Tensor, "stored d_model"]]
    values: Sequence[Float32[Tensor, "stored d_model"]]
    row_indices: Int[Tensor, "rows source"]
    lengths: Int[Tensor, " rows"] | None


def has_decoder_layers() -> bool:
    """Return whether the kernel was built."""
    return has_kernel("decoder_layers_float32")


def pack_layers(
    layers: Sequence[LayerWeights], own_heads: int, cross_heads: int, pre_norm: bool, epsilon: float
) -> PackedLayers:
    """Lay out the weights of layers of the same sizes; they are copied. See ``PackedLayers``."""
    tensors = [
        [
            _packed(layer.own_projection),
            _packed(layer.own_output),
            *_copied(layer.own_norm),
            _packed(layer.cross_query),
            _packed(layer.cross_output),
            *_copied(layer.cross_norm),
            _packed(layer.hidden),
            _packed(layer.output),
            *_copied(layer.feedforward_norm),
        ]
        for layer in layers
    ]
    return PackedLayers(tensors, len(layers[0].hidden[0]), own_heads, cross_heads, pre_norm, epsilon)


def _copied(norm: Norm) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in norm]


def _packed(linear: Linear) -> Tensor:
    weight, bias = (None if tensor is None else tensor.detach().contiguous() for tensor in linear)
    assert weight is not None
    module = kernel_module()
    packed = torch.empty(module.packed_size_float32(*weight.shape), dtype=torch.float32)
    module.pack_float32(weight.data_ptr(), 0 if bias is None else bias.data_ptr(), packed.data_ptr(), *weight.shape)
    return packed


def decoder_layers(
    packed: PackedLayers,
    x: Float32[Tensor, "rows d_model"],
    cached: Sequence[Float32[Tensor, "capacity 2 d_model"]],
    row_indices: Int[Tensor, "rows past"],
    memory: Memory,
) -> Float32[Tensor, "rows d_model"]:
    """Return the output of the last layer for one more position of each of M hypotheses, before a final norm.

    Cost: O(M (t + S) d + M d (d + f)) for each layer in step t.

    Args:
        packed: the weights.
        x: the input of the first layer.
        cached: for each layer a pool of keys and values. The rows of the new position are written.
        row_indices: the rows of the positions so far; the last column has the rows of the new one.
        memory: of cross-attention.

    Raises:
        IndexError: a row index is out of range.
        ValueError: a length is not from 0 to S.
    """
    x, row_indices, memory_indices = x.clone(), row_indices.contiguous(), memory.row_indices.contiguous()
    lengths = None if memory.lengths is None else memory.lengths.contiguous()
    layers = [
        [tensor.data_ptr() for tensor in (*weights, pool, keys, values)]
        for weights, pool, keys, values in zip(packed.tensors, cached, memory.keys, memory.values, strict=True)
    ]
    (rows, width), sources = x.shape, memory_indices.shape[1]
    sizes = (rows, width, packed.d_ff, packed.own_heads, packed.cross_heads, row_indices.shape[1], sources)
    kernel_module().decoder_layers_float32(
        layers,
        x.data_ptr(),
        (*sizes, memory.keys[0].stride(0)),
        packed.pre_norm,
        packed.epsilon,
        row_indices.data_ptr(),
        len(cached[0]),
        memory_indices.data_ptr(),
        len(memory.keys[0]),
        0 if lengths is None else lengths.data_ptr(),
        torch.get_num_threads(),
    )
    return x
