"""Gated DeltaProduct, a linear recurrence that takes the place of attention."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.types import Device

from structattn.attention.projections import InputProjection, OutputProjection, concatenate_heads, one_position
from structattn.attention.protocols import Explanation
from structattn.operators import delta_product, delta_product_step
from structattn.operators.common.checks import computing_precision, head_size, mask_padding, wrong_batch
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Float, Lengths

_EPSILON = 1e-6  # added to the squared norms of queries and keys
_NORM_EPSILON = 1e-5  # added to the mean squares of readings
_LEAST_TIME, _MOST_TIME = 1e-3, 0.1  # initial softplus(delta), log-uniform
_MOST_RATE = 16  # initial e^A, uniform from 0


@dataclass(frozen=True)
class DeltaProductState(Selectable):
    """The matrices of all heads, and the inputs of the convolution that later tokens still see."""

    matrices: Float[Tensor, "batch heads key value"]
    recent: Float[Tensor, "batch before channels"]


class DeltaProductAttention(nn.Module):
    """y_t = W_o [RMSNorm(o_t) * SiLU(W_g x_t)], o_t the reading of gated DeltaProduct (Siems et al. 2025, section 3).

    Queries, keys and values are linear in x, then a causal depthwise convolution and SiLU; queries and keys are divided
    by their norm. The strengths are beta = 2 sigmoid(W_b x), the log-decay is g = -e^A softplus(W_c x + delta).
    See ``delta_product`` for the recurrence. The layer is causal, even in a bidirectional encoder, and knows no
    positions. Parameters, with sizes a and b, m steps and a convolution of width w:
    d H ((1 + m) a + (2 + m) b + m) + d H + 2 H + w H (a + m a + m b) + b, without the d H + 2 H of an absent gate.

    Args:
        d_model: d.
        num_heads: H.
        num_householder: m, the number of steps per token.
        key_size: a; None: d / H.
        value_size: b; None: d / H.
        gate: whether the state decays; without, a state can be kept forever.
        negative_eigenvalues: whether beta is in (0, 2); otherwise in (0, 1), where nothing can be reflected.
        convolution_size: w, how many positions the convolution sees; 0: no convolution.
        device, dtype: of the parameters; None: torch's defaults.

    Raises:
        ValueError: a size or the number of heads or steps is not positive, or H does not divide d where it has to.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_householder: int = 2,
        *,
        key_size: int | None = None,
        value_size: int | None = None,
        gate: bool = True,
        negative_eigenvalues: bool = True,
        convolution_size: int = 4,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.key_size, self.value_size = (_size(d_model, num_heads, size) for size in (key_size, value_size))
        if num_householder < 1 or convolution_size < 0:
            raise ValueError(
                f"num_householder={num_householder}, convolution_size={convolution_size}; expected at least 1 and 0"
            )
        self.d_model, self.num_heads, self.num_householder = d_model, num_heads, num_householder
        self.max_beta, self.convolution_size = 2.0 if negative_eigenvalues else 1.0, convolution_size
        keys, values = num_heads * self.key_size, num_heads * self.value_size
        self.channels = [keys, num_householder * keys, num_householder * values]  # of queries, keys and values
        self.sizes = [sum(self.channels), num_householder * num_heads, values, num_heads if gate else 0]
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.projection = InputProjection(d_model, sum(self.sizes), bias=False, **factory)  # W_qkv, W_b, W_g and W_c
        kernel = torch.empty(sum(self.channels), convolution_size, **factory) if convolution_size else None
        self.convolution = None if kernel is None else nn.Parameter(kernel)
        self.log_rate = nn.Parameter(torch.empty(num_heads, **factory)) if gate else None  # A
        self.decay_bias = nn.Parameter(torch.empty(num_heads, **factory)) if gate else None  # delta
        self.norm = nn.Parameter(torch.empty(self.value_size, **factory))
        self.output = OutputProjection(values, d_model, bias=False, **factory)
        self.initialize_own()

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: as ``delta_product``, and O(T d H m (a + b)) for the projections."""
        inputs, others = self._projected(mask_padding(x, lengths))
        readings = delta_product(*self._recurrence(self._convolved(inputs), others), lengths=lengths)
        return mask_padding(self._gated_output(readings, others), lengths)

    def initial_state(self, batch_size: int) -> DeltaProductState:
        """Return zeros."""
        like, before = self.projection.weight, max(0, self.convolution_size - 1)
        return DeltaProductState(
            like.new_zeros(batch_size, self.num_heads, self.key_size, self.value_size),
            like.new_zeros(batch_size, before, sum(self.channels)),
        )

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: DeltaProductState
    ) -> tuple[Float[Tensor, "batch d_model"], DeltaProductState]:
        """Process one position, in constant time and memory."""
        if len(x_t) != len(state.matrices):
            raise wrong_batch(x_t, state.matrices)
        inputs, others = self._projected(one_position(x_t))
        seen = torch.cat([state.recent, inputs], 1)
        token = [part[:, :, 0] for part in self._recurrence(self._convolved(seen)[:, -1:], others)]
        token, dtype = computing_precision(**_named(token))
        reading, matrices = delta_product_step(state.matrices.to(token[0].dtype), *token)
        y_t = self._gated_output(reading[:, :, None].to(dtype), others)[:, 0]
        return y_t, DeltaProductState(matrices, seen[:, 1:] if self.convolution_size > 1 else state.recent)

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the share of each position in the reading: the absolute coefficients of its values, normalised.

        Coefficients have signs and need not sum to 1; shares do. Cost: O(T^2 m^2 a) for each head.
        """
        inputs, others = self._projected(mask_padding(x, lengths))
        recurrence = self._recurrence(self._convolved(inputs), others)
        (query, key, _, beta, decay), dtype = computing_precision(**_named(recurrence))
        (batch, heads, time, steps), size = beta.shape, beta.shape[2] * beta.shape[3]
        units = torch.eye(size, dtype=beta.dtype, device=beta.device).view(time, steps, size)
        units = units.expand(batch, heads, time, steps, size)
        coefficients = delta_product(query, key, units, beta, decay, lengths=lengths)
        absolute = coefficients.abs().view(batch, heads, time, time, steps).sum(-1)
        shares = absolute / absolute.sum(-1, keepdim=True).clamp(min=1e-30)
        return Explanation("delta_product", shares.to(dtype))

    @torch.no_grad()
    def initialize_own(self) -> None:
        """Draw A, delta and the convolution, and set the scale of the norm to 1; the linear maps stay."""
        nn.init.ones_(self.norm)
        if self.convolution is not None:
            bound = self.convolution_size**-0.5
            nn.init.uniform_(self.convolution, -bound, bound)
        if self.log_rate is not None and self.decay_bias is not None:
            nn.init.uniform_(self.log_rate, 0, _MOST_RATE).clamp_(min=1e-4).log_()
            time = nn.init.uniform_(self.decay_bias, math.log(_LEAST_TIME), math.log(_MOST_TIME)).exp_()
            time.add_(torch.log(-torch.expm1(-time)))  # the inverse of softplus

    def _projected(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the inputs of the convolution, and the logits of beta, output gate and decay."""
        inputs, *others = self.projection(x).split_with_sizes(self.sizes, dim=-1)
        return inputs, others

    def _convolved(self, inputs: Float[Tensor, "batch time channels"]) -> Float[Tensor, "batch time channels"]:
        if self.convolution is None:
            return F.silu(inputs)
        before, time = self.convolution_size - 1, inputs.shape[1]
        padded = F.pad(inputs, (0, 0, before, 0))
        taps = [padded[:, i : i + time] * weights for i, weights in enumerate(self.convolution.unbind(-1))]
        return F.silu(sum(taps[1:], start=taps[0]))

    def _recurrence(self, inputs: Tensor, others: list[Tensor]) -> list[Tensor]:
        """Return query, key, value, beta and log-decay, as ``delta_product`` takes them."""
        query, key, value = inputs.split_with_sizes(self.channels, dim=-1)
        beta, _, decay = others
        batch, time, steps, heads = *query.shape[:2], self.num_householder, self.num_heads
        query = query.view(batch, time, heads, self.key_size).transpose(1, 2)
        key = key.view(batch, time, steps, heads, self.key_size).permute(0, 3, 1, 2, 4)
        value = value.view(batch, time, steps, heads, self.value_size).permute(0, 3, 1, 2, 4)
        beta = self.max_beta * torch.sigmoid(beta.view(batch, time, steps, heads).permute(0, 3, 1, 2))
        return [_unit(query), _unit(key), value, beta, self._log_decay(decay, beta)]

    def _log_decay(self, logits: Tensor, beta: Tensor) -> Float[Tensor, "batch heads time"]:
        if self.log_rate is None or self.decay_bias is None:
            return torch.zeros_like(beta[..., 0])
        return (-torch.exp(self.log_rate) * F.softplus(logits + self.decay_bias)).transpose(1, 2)

    def _gated_output(self, readings: Tensor, others: list[Tensor]) -> Float[Tensor, "batch time d_model"]:
        normalized = F.rms_norm(readings, (self.value_size,), self.norm, _NORM_EPSILON)
        gate = torch.unflatten(F.silu(others[1]), 2, (self.num_heads, self.value_size)).transpose(1, 2)
        y: Tensor = self.output(concatenate_heads(normalized * gate))
        return y


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _EPSILON)


def _named(token: list[Tensor]) -> dict[str, Tensor]:
    return dict(zip(("query", "key", "value", "beta", "log_decay"), token, strict=True))


def _size(d_model: int, num_heads: int, size: int | None) -> int:
    """Return the size of keys or values of a head."""
    if size is None:
        return head_size(d_model, num_heads)
    if size < 1 or num_heads < 1:
        raise ValueError(f"{num_heads} heads of size {size}; expected at least 1 of each")
    return size
