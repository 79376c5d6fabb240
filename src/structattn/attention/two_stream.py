"""Two-stream attention: softmax attention for one stream, hard attention with the same scores for the other."""

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from structattn.attention.hard import TwoStreamSelection
from structattn.attention.heads import CrossHeads, SelfHeads
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, NoOutputProjection, OutputProjection, split_heads
from structattn.attention.protocols import Streams


class TwoStreamAttention(SelfHeads[Streams]):
    """Softmax attention for g and hard attention for h (the Discrete Transformer paper, section 5).

    K, V, Q are projections of g, and V' of h. The output for g is A V with A = softmax(Q K^T / sqrt(d / H)), that for h
    is V'_z with z selected by A as in ``HardAttention``: sampled in training, the largest in evaluation. g does not
    depend on h. Each stream has an output projection of its own: 6 d (d + 1) parameters, or 6 d^2 without biases.

    Args:
        d_model: d, of either stream.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        causal: position t attends to positions up to t only. A bidirectional layer has no ``step``.
        bias: whether the projections have biases.
        positions: acts on the scores; a module of this layer alone.
        output_projection: whether there are output projections, which the paper's equations do not have.
        noise: whether samples have Gumbel noise; False: training is deterministic.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        temperature: float = 1.0,
        straight_through: bool = False,
        causal: bool = True,
        bias: bool = True,
        positions: ScorePositions | None = None,
        output_projection: bool = True,
        noise: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, num_heads)
        self.selection, self.causal = TwoStreamSelection(temperature, straight_through, noise), causal
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, 3 * d_model, bias, **factory)  # of g: queries, keys, values
        self.content = InputProjection(d_model, d_model, bias, **factory)  # of h
        output = OutputProjection if output_projection else NoOutputProjection
        self.syntactic_output = output(d_model, d_model, bias, **factory)
        self.semantic_output = output(d_model, d_model, bias, **factory)
        self.positions = positions

    _num_cached = 3

    def _projected(self, x: Streams) -> tuple[Tensor, ...]:
        read = split_heads(self.projection(x.syntactic), self.num_heads, parts=3)
        return *read, *split_heads(self.content(x.semantic), self.num_heads)

    def output(self, outputs: Streams) -> Streams:
        """Return the layer's outputs, given the concatenated outputs of all heads."""
        return Streams(self.syntactic_output(outputs.syntactic), self.semantic_output(outputs.semantic))


class CrossTwoStreamAttention(CrossHeads[Streams]):
    """``TwoStreamAttention`` to a memory of two streams, with 6 d (d + 1) parameters, or 6 d^2 without biases.

    Queries are projections of the sequence's g (its h is not used), K and V of the memory's g, V' of the memory's h.

    Args:
        d_model: d, of either stream of the sequence and of the memory.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        bias: whether the projections have biases.
        noise: whether samples have Gumbel noise; False: training is deterministic.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        temperature: float = 1.0,
        straight_through: bool = False,
        bias: bool = True,
        noise: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, num_heads)
        self.selection = TwoStreamSelection(temperature, straight_through, noise)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = InputProjection(d_model, d_model, bias, **factory)
        self.memory = InputProjection(d_model, 2 * d_model, bias, **factory)  # of the memory's g: keys, values
        self.content = InputProjection(d_model, d_model, bias, **factory)  # of its h
        self.syntactic_output = OutputProjection(d_model, d_model, bias, **factory)
        self.semantic_output = OutputProjection(d_model, d_model, bias, **factory)

    def _queries(self, x: Streams) -> Any:
        return split_heads(self.query(x.syntactic), self.num_heads)

    def _projected_memory(self, memory: Streams) -> tuple[Tensor, ...]:
        read = split_heads(self.memory(memory.syntactic), self.num_heads, parts=2)
        return *read, *split_heads(self.content(memory.semantic), self.num_heads)

    def output(self, outputs: Streams) -> Streams:
        """Return the layer's outputs, given the concatenated outputs of all heads."""
        return Streams(self.syntactic_output(outputs.syntactic), self.semantic_output(outputs.semantic))
