"""Multi-head scaled dot-product attention: self-attention and cross-attention."""

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from structattn.attention.heads import CrossHeads, SelfHeads, SoftmaxSelection
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, OutputProjection
from structattn.operators.common.dropout import checked_rate


class _WithDropout:
    """A layer whose rate of dropout can be read and set."""

    selection: SoftmaxSelection

    @property
    def dropout(self) -> float:
        """The rate at which weights are dropped in training."""
        return self.selection.dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        self.selection = SoftmaxSelection(checked_rate(rate))


class SoftmaxAttention(_WithDropout, SelfHeads[Tensor]):
    """y_t = W_y concat_h(sum_s softmax_s(q_t . k_s / sqrt(d / H)) v_s) + b (Vaswani et al. 2017, section 3.2).

    Queries, keys and values are linear projections of x, with biases as in torch's MultiheadAttention: 4 d (d + 1)
    parameters, or 4 d^2 without biases.

    Args:
        d_model: d.
        num_heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        causal: position t attends to positions up to t only. A bidirectional layer has no ``step``.
        bias: whether the four projections have biases.
        positions: acts on the scores; a module of this layer alone.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        causal: bool = True,
        bias: bool = True,
        positions: ScorePositions | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, num_heads)
        self.selection, self.causal = SoftmaxSelection(checked_rate(dropout)), causal
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, 3 * d_model, bias, **factory)
        self.output = OutputProjection(d_model, d_model, bias, **factory)
        self.positions = positions


class CrossSoftmaxAttention(_WithDropout, CrossHeads[Tensor]):
    """``SoftmaxAttention`` to a memory, with 4 d (d + 1) parameters, or 4 d^2 without biases.

    Args:
        d_model: d, of the sequence and of the memory.
        num_heads: H, which must divide d.
        dropout: rate at which weights are dropped in training.
        bias: whether the four projections have biases.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, num_heads)
        self.selection = SoftmaxSelection(checked_rate(dropout))
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = InputProjection(d_model, d_model, bias, **factory)
        self.memory = InputProjection(d_model, 2 * d_model, bias, **factory)
        self.output = OutputProjection(d_model, d_model, bias, **factory)
