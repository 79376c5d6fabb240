"""Multi-head hard attention, in which each head selects one position: self-attention and cross-attention."""

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from structattn.attention.hard_selection import HardSelection
from structattn.attention.heads import CrossHeads, SelfHeads
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, OutputProjection


class HardAttention(SelfHeads[Tensor]):
    """y_t = W_y concat_h(v_z) + b with one position z per head and query (the Discrete Transformer paper, section 4).

    The scores are those of ``SoftmaxAttention``. In evaluation z is the position with the largest score, the first of
    ties, and queries, keys and positions get no gradient. In training z is sampled from the softmax of the scores,
    relaxed by the Gumbel-softmax to differentiable weights; each call samples anew from torch's generator. 4 d (d + 1)
    parameters, or 4 d^2 without biases.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        causal: position t attends to positions up to t only. A bidirectional layer has no ``step``.
        bias: whether the four projections have biases.
        positions: acts on the scores; a module of this layer alone.
        noise: whether samples have Gumbel noise; False: training is deterministic.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        temperature: float = 1.0,
        straight_through: bool = False,
        causal: bool = True,
        bias: bool = True,
        positions: ScorePositions | None = None,
        noise: bool = True,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.selection, self.causal = HardSelection(temperature, straight_through, noise), causal
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.d_model, self.num_heads = d_model, num_heads
        self.projection = InputProjection(d_model, num_heads, parts=3, bias=bias, **factory)
        self.output = OutputProjection(d_model, bias, **factory)
        self.positions = positions


class CrossHardAttention(CrossHeads[Tensor]):
    """``HardAttention`` to a memory, with 4 d (d + 1) parameters, or 4 d^2 without biases.

    Arguments are those of ``HardAttention``, of which the memory has the same width.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        temperature: float = 1.0,
        straight_through: bool = False,
        bias: bool = True,
        noise: bool = True,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.selection = HardSelection(temperature, straight_through, noise)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = InputProjection(d_model, num_heads, parts=1, bias=bias, **factory)
        self.memory = InputProjection(d_model, num_heads, parts=2, bias=bias, **factory)
        self.output = OutputProjection(d_model, bias, **factory)
