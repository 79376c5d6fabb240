"""Benchmark cases: the call, the inputs and the operation count of every operator."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators import (
    RecurrentStack,
    gaussian_attention,
    hard_attention,
    nondeterministic_stack,
    softmax_attention,
    stack_pointer,
    stack_pointer_weights,
    stack_rnn,
    stratified_stack,
    superposition_stack,
)
from structattn.operators.receptive_field import receptive_field

STACKS = (64, 128, 256, 512)
ATTENTIONS = (128, 512, 2048)
Shape = tuple[int, int, int]  # batch, heads, head size


@dataclass(frozen=True)
class Case:
    """An operator to measure.

    Args:
        name: the operator and its variant.
        lengths: sequence lengths to measure.
        reference_lengths: lengths at which its reference is measured too.
        leaves: returns the inputs for a length; all receive gradients.
        call: returns the result for inputs and an implementation.
        operations: returns the operations of the forward pass at a length; a multiply-add counts as two.
        softmax_shape: the shape of torch's fused softmax attention that is measured for comparison.
    """

    name: str
    lengths: tuple[int, ...]
    reference_lengths: tuple[int, ...]
    leaves: Callable[[int], list[Tensor]]
    call: Callable[[list[Tensor], str], Tensor]
    operations: Callable[[int], float]
    softmax_shape: Shape


def fused_softmax(shape: Shape, length: int) -> tuple[list[Tensor], Callable[[list[Tensor]], Tensor]]:
    """Return inputs and call of torch's causal attention."""
    batch, heads, size = shape
    inputs = [torch.randn(batch, heads, length, size) for _ in range(3)]
    return inputs, lambda given: F.scaled_dot_product_attention(*given, is_causal=True)


def _actions(batch: int, n: int) -> Tensor:
    return torch.randn(batch, n, 3).softmax(-1)


_NETWORK = RecurrentStack("superposition", 10)


def _network(n: int) -> list[Tensor]:
    """Return the inputs of an LSTM of 93 units: gate inputs, recurrent weights, heads and their bias, bottom vector."""
    shapes = (10, n, 4 * 93), (4 * 93, 103), (13, 93), (13,), (10,)
    return [torch.randn(shape) / 10 for shape in shapes]


def _transitions(n: int) -> list[Tensor]:
    push = (10, n, 2, 3, 2, 3)
    return [torch.randn(push), torch.randn(push), torch.randn(push[:-1]), torch.randn(10, n, 5), torch.randn(5)]


def _heads(shape: Shape, n: int) -> Tensor:
    batch, heads, size = shape
    return torch.randn(batch, heads, n, size)


_SMALL, _WIDE, _LONG = (10, 4, 8), (32, 8, 32), (2, 4, 64)  # widths 32, 256, 256


def _gaussian(kernel: str, keys: int) -> Case:
    batch, heads, size = _LONG
    return Case(
        f"gaussian_attention, {kernel}",
        ATTENTIONS,
        ATTENTIONS,
        lambda n: [_heads(_LONG, n)],
        lambda given, choice: gaussian_attention(
            given[0], [-1, 0, -1, 0], kernel=kernel, causal=True, implementation=choice
        ),
        lambda n: 2 * batch * heads * size * n * keys,
        _LONG,
    )


CASES = (
    Case(
        "superposition_stack",
        STACKS,
        STACKS,
        lambda n: [_actions(10, n), torch.randn(10, n, 32)],
        lambda given, choice: superposition_stack(*given, implementation=choice),
        lambda n: 2 * 3 * 10 * 32 * n**2 / 4,
        _SMALL,
    ),
    Case(
        "stratified_stack",
        STACKS,
        STACKS,
        lambda n: [torch.rand(10, n, 2), torch.randn(10, n, 32)],
        lambda given, choice: stratified_stack(*given, implementation=choice),
        lambda n: 2 * 10 * 32 * n**2 / 2,
        _SMALL,
    ),
    Case(
        "stack_rnn, superposition 10",
        STACKS,
        STACKS,
        _network,
        lambda given, choice: stack_rnn(*given, cell="lstm", stack=_NETWORK, implementation=choice),
        lambda n: 2 * 10 * n * (4 * 93 * 103 + 13 * 93),
        _SMALL,
    ),
    Case(
        "nondeterministic_stack",
        STACKS,
        (64,),
        _transitions,
        lambda given, choice: nondeterministic_stack(*given, implementation=choice),
        lambda n: 2 * 10 * n**3 / 6 * (2**3 * 3 + 2**2 * 3),
        _SMALL,
    ),
    Case(
        "nondeterministic_stack, window 32",
        STACKS,
        (64,),
        _transitions,
        lambda given, choice: nondeterministic_stack(*given, window=32, implementation=choice),
        lambda n: 2 * 10 * n * 32**2 / 2 * (2**3 * 3 + 2**2 * 3),
        _SMALL,
    ),
    Case(
        "stack_pointer_weights",
        STACKS,
        STACKS[:3],
        lambda n: [_actions(32, n)],
        lambda given, choice: stack_pointer_weights(given[0], implementation=choice),
        lambda n: 2 * 32 * n**3 / 6,
        _WIDE,
    ),
    Case(
        "stack_pointer",
        STACKS,
        STACKS[:3],
        lambda n: [_actions(32, n), torch.randn(32, n + 1, 256)],
        lambda given, choice: stack_pointer(*given, implementation=choice),
        lambda n: 2 * 32 * (n**3 / 6 + 256 * n**2 / 2),
        _WIDE,
    ),
    _gaussian("full", 14),  # of the 27 that count, those not later than the query, for the offsets -1 and 0
    _gaussian("window", 3),
    _gaussian("index", 1),
    Case(
        "softmax_attention",
        ATTENTIONS,
        ATTENTIONS,
        lambda n: [_heads(_LONG, n) for _ in range(3)],
        lambda given, choice: softmax_attention(*given, causal=True, implementation=choice),
        lambda n: 2 * 2 * 2 * 4 * 64 * n**2 / 2,
        _LONG,
    ),
    Case(
        "hard_attention, sampled",
        ATTENTIONS,
        (),
        lambda n: [torch.randn(2, 4, n, n), _heads(_LONG, n)],
        lambda given, choice: hard_attention(*given, sample=True, causal=True)[0],
        lambda n: 2 * 2 * 4 * 64 * n**2,
        _LONG,
    ),
    Case(
        "hard_attention, argmax",
        ATTENTIONS,
        (),
        lambda n: [torch.randn(2, 4, n, n), _heads(_LONG, n)],
        lambda given, choice: hard_attention(*given, causal=True)[0],
        lambda n: 2 * 4 * n**2,
        _LONG,
    ),
    Case(
        "receptive_field, 4 layers of 2 heads",
        ATTENTIONS,
        (),
        lambda n: [torch.randn(1, 2, n, n).softmax(-1) for _ in range(4)],
        lambda given, choice: receptive_field(given),
        lambda n: 4 * 2 * n**3,
        _LONG,
    ),
)
