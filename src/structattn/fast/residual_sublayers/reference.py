"""The definition of the residual sublayers: DuSell & Chiang (2024), equations 14 to 16, in separate operators.

Shapes: B batch, T time, d size of a position, H heads, f hidden units. Masks are given by the random numbers of
``common/dropout.py``, and the number of those that drop an element.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.dropout import apply_mask
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.reference import reference_readings
from structattn.operators.softmax_attention.cpu import Options, softmax_attention_cpu
from structattn.operators.softmax_attention.reference import Visibility, softmax_attention_reference


class SublayerWeights(NamedTuple):
    """The parameters of a sublayer.

    Args:
        scale: of the layer norm, (d,).
        shift: of the layer norm, (d,); None: zeros.
        first: the projection to queries, keys and values, (3 d, d), or to hidden units, (f, d).
        first_bias: None: zeros.
        second: the output projection, (d, d) or (d, f).
        second_bias: None: zeros.
    """

    scale: Tensor
    shift: Tensor | None
    first: Tensor
    first_bias: Tensor | None
    second: Tensor
    second_bias: Tensor | None


class StackWeights(NamedTuple):
    """The parameters of a sublayer with a nondeterministic stack of Q states, S symbols and vectors of size m.

    Args:
        scale: of the layer norm, (d,).
        shift: of the layer norm, (d,); None: zeros.
        first: the projection to the logits of A transitions, laid out for each (q, x) as push (r, y), replace (r, y),
            pop (r), and to the pushed vector, (A + m, d).
        second: the output projection, (d, Q S m).
        bottom: the bottom vector before its sigmoid, (m,).
    """

    scale: Tensor
    shift: Tensor | None
    first: Tensor
    second: Tensor
    bottom: Tensor


class Dropout(NamedTuple):
    """Random numbers (n,) int64 for the elements of a tensor, and how many of 2^16 drop one; None: no dropout."""

    numbers: Int64[Tensor, " n"] | None
    dropped: int

    def __call__(self, x: Tensor) -> Tensor:
        """Drop elements of ``x`` and scale the others."""
        return x if self.numbers is None else apply_mask(x, self.numbers, self.dropped)


def residual_attention_reference(
    x: Float[Tensor, "batch time d_model"],
    weights: SublayerWeights,
    num_heads: int,
    causal: bool,
    lengths: Int[Tensor, " batch"] | None,
    weight_dropout: tuple[float, Tensor | None],
    dropout: Dropout,
    epsilon: float,
) -> Float[Tensor, "batch time d_model"]:
    """Return x + Dropout(W_2 concat_h(softmax_attention(W_1 LayerNorm(x) + b_1)) + b_2); x past each length.

    Args:
        x: the input.
        weights: W_1 projects to queries, keys and values.
        num_heads: H, which divides d.
        causal: position t attends to positions up to t only.
        lengths: the number of positions of each sequence; None: T.
        weight_dropout: rate at which weights of attention are dropped, and the seed (1,) of the kernel's numbers.
        dropout: of the residual.
        epsilon: of the layer norm.
    """
    if lengths is not None:
        inside = torch.arange(x.shape[1]) < lengths[:, None]
        own = torch.where(inside[..., None], x, 0)
    else:
        own = x
    normalized = F.layer_norm(own, x.shape[2:], weights.scale, weights.shift, epsilon)
    projected = F.linear(normalized, weights.first, weights.first_bias)
    query, key, value = (
        projected.view(*x.shape[:2], 3, num_heads, x.shape[2] // num_heads).permute(2, 0, 3, 1, 4).unbind(0)
    )
    scale = query.shape[-1] ** -0.5
    rate, seed = weight_dropout
    if rate > 0:
        ends = None if lengths is None else torch.stack((lengths, lengths))
        options = [*Options(scale, rate, float(causal), 0.0)]
        readings, _ = softmax_attention_cpu(query, key, value, None, ends, seed, options)
    else:
        visible = Visibility(lengths, lengths, causal, None)
        readings, _ = softmax_attention_reference([query, key, value], visible, scale, 0.0)
    y = dropout(F.linear(readings.transpose(1, 2).flatten(2), weights.second, weights.second_bias))
    return x + (y if lengths is None else torch.where(inside[..., None], y, 0))


def residual_feedforward_reference(
    x: Float[Tensor, "batch time d_model"],
    weights: SublayerWeights,
    hidden_dropout: Dropout,
    dropout: Dropout,
    epsilon: float,
) -> Float[Tensor, "batch time d_model"]:
    """Return x + Dropout(W_2 Dropout(relu(W_1 LayerNorm(x) + b_1)) + b_2).

    Args:
        x: the input.
        weights: W_1 projects to hidden units.
        hidden_dropout: of the hidden units.
        dropout: of the residual.
        epsilon: of the layer norm.
    """
    normalized = F.layer_norm(x, x.shape[2:], weights.scale, weights.shift, epsilon)
    hidden = hidden_dropout(F.relu(F.linear(normalized, weights.first, weights.first_bias)))
    return x + dropout(F.linear(hidden, weights.second, weights.second_bias))


def residual_stack_reference(
    x: Float[Tensor, "batch time d_model"],
    weights: StackWeights,
    num_states: int,
    num_symbols: int,
    lengths: Int[Tensor, " batch"] | None,
    window: int | None,
    activation: Literal["sigmoid", "exp"],
    pop_offset: float,
    dropout: Dropout,
    epsilon: float,
) -> Float[Tensor, "batch time d_model"]:
    """Return x + Dropout(W_2 nondeterministic_stack(W_1 LayerNorm(x))); x past each length.

    Args:
        x: the input.
        weights: see there.
        num_states: Q.
        num_symbols: S.
        lengths: the number of positions of each sequence; None: T.
        window: number of steps after its push in which an item can be popped; None: no limit.
        activation: of the pushed vector.
        pop_offset: added to the logits of pops.
        dropout: of the residual.
        epsilon: of the layer norm.
    """
    targets = num_states * num_symbols
    normalized = F.layer_norm(x, x.shape[2:], weights.scale, weights.shift, epsilon)
    if lengths is not None:
        inside = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
        normalized = torch.where(inside, normalized, 0)
    projected = F.linear(normalized, weights.first)
    values = torch.sigmoid if activation == "sigmoid" else torch.exp
    shape = *x.shape[:2], num_states, num_symbols, 2 * targets + num_states
    transitions = projected[..., : -len(weights.bottom)].reshape(shape)
    push, replace, pop = transitions.split_with_sizes([targets, targets, num_states], dim=-1)
    sizes = num_states, num_symbols
    logits = push.reshape(*shape[:4], *sizes), replace.reshape(*shape[:4], *sizes), pop + pop_offset
    vectors = values(projected[..., -len(weights.bottom) :]), torch.sigmoid(weights.bottom)
    readings, _ = reference_readings(checked_arguments(*logits, *vectors, lengths, window).in_range())
    y = dropout(F.linear(readings.flatten(2), weights.second))
    return x + (y if lengths is None else torch.where(inside, y, 0))
