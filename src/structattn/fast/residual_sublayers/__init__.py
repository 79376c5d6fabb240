"""Sublayers of a transformer, each in one kernel call: layer norm, the sublayer, dropout and the residual sum.

Between small matrix products, calls of separate operators take longer than the arithmetic. The kernels draw the same
random numbers from torch's global generator as separate operators, so that both drop the same elements. A
``ResidualSublayer`` is of any kind.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

from torch import Tensor

from structattn.fast.residual_sublayers.sequence import (
    AttentionOptions,
    FeedForwardOptions,
    SublayerWeights,
    run_sequence,
)
from structattn.fast.residual_sublayers.stack import StackOptions, StackWeights, run_stack
from structattn.operators.common.checks import integer_lengths
from structattn.operators.common.dropout import dropped_steps, mask_numbers
from structattn.support.shapes import Float, Lengths

__all__ = [
    "AttentionSublayer",
    "FeedForwardSublayer",
    "ResidualSublayer",
    "StackSublayer",
    "StackWeights",
    "SublayerWeights",
    "residual_sublayers",
]


class AttentionSublayer(NamedTuple):
    """x + Dropout(W_2 concat_h(softmax_attention(W_1 LayerNorm(x) + b_1)) + b_2), and x past each length.

    What x contains past a sequence's length affects nothing else. Cost: O(B T d (T + d)) time; O(B T d) memory for the
    backward pass.

    Args:
        weights: W_1 projects to queries, keys and values, (3 d, d); W_2 is (d, d).
        num_heads: H, which divides d.
        causal: position t attends to positions up to t only.
        weight_dropout: rate at which weights of attention are dropped.
        dropout: rate at which elements of the sublayer's output are dropped.
        epsilon: of the layer norm.
    """

    weights: SublayerWeights
    num_heads: int
    causal: bool
    weight_dropout: float = 0.0
    dropout: float = 0.0
    epsilon: float = 1e-5

    def options(self) -> AttentionOptions:
        """Return the numbers that the kernel takes."""
        if len(self.weights.scale) % self.num_heads:
            raise ValueError(f"{self.num_heads} heads do not divide a width of {len(self.weights.scale)}")
        causal, dropped = float(self.causal), dropped_steps(self.dropout)
        return AttentionOptions(self.num_heads, causal, self.epsilon, self.weight_dropout, dropped)


class FeedForwardSublayer(NamedTuple):
    """x + Dropout(W_2 Dropout(relu(W_1 LayerNorm(x) + b_1)) + b_2).

    Cost: O(B T d f) time for f hidden units; O(B T f) memory for the backward pass.

    Args:
        weights: W_1 projects to hidden units, (f, d); W_2 is (d, f).
        hidden_dropout: rate at which hidden units are dropped.
    """

    weights: SublayerWeights
    hidden_dropout: float = 0.0
    dropout: float = 0.0
    epsilon: float = 1e-5

    def options(self) -> FeedForwardOptions:
        """Return the numbers that the kernel takes."""
        return FeedForwardOptions(self.epsilon, dropped_steps(self.hidden_dropout), dropped_steps(self.dropout))


class StackSublayer(NamedTuple):
    """x + Dropout(W_2 nondeterministic_stack(W_1 LayerNorm(x))), and x past each length.

    What x contains past a sequence's length affects nothing else. Cost: that of ``nondeterministic_stack`` and of the
    projections; memory for the backward pass: its tables.

    Args:
        num_states: Q.
        num_symbols: S.
        activation: of the pushed vector.
        offsets: added to the logits of transitions, (A,), in float64 on the CPU.
    """

    weights: StackWeights
    num_states: int
    num_symbols: int
    window: int | None
    activation: Literal["sigmoid", "exp"]
    offsets: Tensor
    dropout: float = 0.0
    epsilon: float = 1e-5

    def apply(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the output for ``x``."""
        dropped = dropped_steps(self.dropout)
        sizes, exponential = (self.num_states, self.num_symbols, self.window), self.activation == "exp"
        options = StackOptions(*sizes, exponential, self.offsets, self.epsilon, dropped)
        return run_stack(x, self.weights, lengths, mask_numbers(x.numel()) if dropped else None, options)


ResidualSublayer = AttentionSublayer | FeedForwardSublayer | StackSublayer


def residual_sublayers(
    x: Float[Tensor, "batch time d_model"], sublayers: Sequence[ResidualSublayer], lengths: Lengths = None
) -> Float[Tensor, "batch time d_model"]:
    """Apply sublayers one after the other. Differentiable once.

    Args:
        x: the input, float32 or float64 on a CPU, as the weights of each sublayer.
        sublayers: what to apply; stacks by a call of their own, all others between them by one.
        lengths: the number of positions of each sequence, for attention; None: T.

    Raises:
        ValueError: lengths are not integers of shape (B,) from 0 to T.
    """
    lengths = integer_lengths(lengths, len(x), x.device)
    for is_stack, group in itertools.groupby(sublayers, lambda sublayer: isinstance(sublayer, StackSublayer)):
        if is_stack:
            for sublayer in group:
                x = cast(StackSublayer, sublayer).apply(x, lengths)
        else:
            small = cast(Iterable[AttentionSublayer | FeedForwardSublayer], group)
            x = run_sequence(x, [(sublayer.weights, sublayer.options()) for sublayer in small], lengths)
    return x
