"""Multi-head hard attention, in which each head selects one position: self- and cross-attention."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.cache import Cache
from structattn.attention.heads import AttentionInputs, CrossHeads, SelfHeads
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import InputProjection, OutputProjection, apply_positions
from structattn.attention.protocols import Explanation, Streams
from structattn.operators import hard_attention
from structattn.operators.common.checks import computing_precision
from structattn.operators.hard_attention import require_temperature
from structattn.support.shapes import Float


@dataclass(frozen=True)
class HardSelection:
    """The rule that selects one value for each query (the Discrete Transformer paper, section 4).

    Args:
        temperature: of the Gumbel-softmax samples in training; the paper's is 1.
        straight_through: use the one-hot sample in training, too, with the gradient of the relaxed weights.
        noise: whether samples have Gumbel noise.
    """

    temperature: float = 1.0
    straight_through: bool = False
    noise: bool = True

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def attend(self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool) -> Any:
        """Return the selected values. In evaluation they are gathered, and no weights are computed."""
        return self._selected(inputs, values[0], training, return_weights=False)[0]

    def attend_with_weights(
        self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool
    ) -> tuple[Any, Float[Tensor, "batch heads time source"]]:
        """Return the selected values and the weights: a sample, or one-hot at the largest score."""
        outputs, _, weights = self._selected(inputs, values[0], training, return_weights=True)
        return outputs, weights.to(outputs.dtype)

    def attend_cached(self, query: Tensor, cache: Cache, positions: ScorePositions | None, training: bool) -> Any:
        """Return the selected values."""
        keys, *values = cache.tensors
        positioned = apply_positions(positions, query, keys, keys.shape[2] - 1)
        return self.attend(AttentionInputs(*positioned, memory_lengths=cache.lengths), tuple(values), training)

    def explain(self, inputs: AttentionInputs, values: tuple[Tensor, ...]) -> Explanation:
        """Return the selections of evaluation, and the probabilities from which training samples."""
        outputs, _, weights = self._selected(inputs, values[-1], training=False, return_weights=True)
        _, probabilities = inputs.softmax_attention(values[-1], return_weights=True)
        return Explanation("hard", weights.to(outputs.dtype), details={"probabilities": probabilities.transpose(1, 2)})

    def _selected(self, inputs: AttentionInputs, values: Tensor, training: bool, return_weights: bool) -> Any:
        (values,), dtype = computing_precision(values=values)
        attention: Any = hard_attention  # its overloads need return_weights as a literal
        outputs, *rest = attention(
            inputs.scores(),
            values,
            self.temperature,
            sample=training,
            straight_through=self.straight_through,
            noise=self.noise,
            causal=inputs.causal,
            lengths=inputs.lengths,
            memory_lengths=inputs.memory_lengths,
            return_weights=return_weights,
        )
        return outputs.to(dtype), *rest


@dataclass(frozen=True)
class TwoStreamSelection(HardSelection):
    """Softmax attention to the values of g, and the selection of those of h by the same scores."""

    def attend(self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool) -> Streams:
        """Return the outputs of both streams."""
        return Streams(inputs.softmax_attention(values[0]), super().attend(inputs, values[1:], training))

    def attend_with_weights(
        self, inputs: AttentionInputs, values: tuple[Tensor, ...], training: bool
    ) -> tuple[Streams, Float[Tensor, "batch heads time source"]]:
        """Return the outputs of both streams and the weights of h."""
        selected, weights = super().attend_with_weights(inputs, values[1:], training)
        return Streams(inputs.softmax_attention(values[0]), selected), weights


def set_temperature(module: nn.Module, temperature: float) -> None:
    """Set the temperature of all hard attention in a module."""
    for layer in module.modules():
        selection = getattr(layer, "selection", None)
        if isinstance(selection, HardSelection):
            layer.selection = replace(selection, temperature=temperature)  # type: ignore[assignment]  # no tensor


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
        *,
        temperature: float = 1.0,
        straight_through: bool = False,
        causal: bool = True,
        bias: bool = True,
        positions: ScorePositions | None = None,
        noise: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(d_model, num_heads)
        self.selection, self.causal = HardSelection(temperature, straight_through, noise), causal
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, 3 * d_model, bias, **factory)
        self.output = OutputProjection(d_model, d_model, bias, **factory)
        self.positions = positions


class CrossHardAttention(CrossHeads[Tensor]):
    """``HardAttention`` to a memory, with 4 d (d + 1) parameters, or 4 d^2 without biases.

    Args:
        d_model: d, of the sequence and of the memory.
        num_heads: H, which must divide d.
        temperature: of the samples; near 0 they become one-hot.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.
        bias: whether the four projections have biases.
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
        self.selection = HardSelection(temperature, straight_through, noise)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = InputProjection(d_model, d_model, bias, **factory)
        self.memory = InputProjection(d_model, 2 * d_model, bias, **factory)
        self.output = OutputProjection(d_model, d_model, bias, **factory)
