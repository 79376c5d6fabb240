"""Operators and inputs that gpu.py measures."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from structattn.attention.positions import AlibiPositions
from structattn.operators import (
    gaussian_attention,
    hard_attention,
    nondeterministic_stack,
    softmax_attention,
    stack_pointer,
    stack_pointer_weights,
    stratified_stack,
    superposition_stack,
)

VECTOR, HEADS = 64, 8
Call = Callable[..., Tensor]


def actions(batch: int, time: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return random probabilities of push, no-op and pop."""
    return torch.randn(batch, time, 3, device="cuda", dtype=dtype).softmax(-1)


def superposition(batch: int, time: int) -> list[Tensor]:
    """Return actions and pushed vectors."""
    return [actions(batch, time), torch.randn(batch, time, VECTOR, device="cuda")]


def stratified(batch: int, time: int) -> list[Tensor]:
    """Return strengths of pushes and pops, and pushed vectors."""
    return [torch.rand(batch, time, 2, device="cuda"), torch.randn(batch, time, VECTOR, device="cuda")]


def pointer(batch: int, time: int) -> list[Tensor]:
    """Return actions and hidden states; one more than actions, for the empty stack."""
    return [actions(batch, time), torch.randn(batch, time + 1, 256, device="cuda")]


def transitions(states: int, symbols: int, vector: int) -> Callable[[int, int], list[Tensor]]:
    """Return a function that gives logits of push, replace and pop, pushed vectors and the bottom vector."""

    def leaves(batch: int, time: int) -> list[Tensor]:
        push = batch, time, states, symbols, states, symbols
        shapes = push, push, push[:-1], (batch, time, vector), (vector,)
        return [torch.randn(shape, device="cuda") for shape in shapes]

    return leaves


OPERATORS: dict[str, tuple[Callable[[int, int], list[Tensor]], Call]] = {
    f"superposition_stack, m {VECTOR}": (superposition, superposition_stack),
    "stack_pointer_weights": (lambda batch, time: [actions(batch, time)], stack_pointer_weights),
    "stack_pointer, d 256": (pointer, stack_pointer),
    "nondeterministic_stack, 2-3-5": (transitions(2, 3, 5), nondeterministic_stack),
    "nondeterministic_stack, 3-3-10": (transitions(3, 3, 10), nondeterministic_stack),
}


def attention_inputs(*last: int | None) -> Callable[[int, int], list[Tensor]]:
    """Return a function that gives tensors (B, H, T, size), for each size one; T where it is None."""
    return lambda batch, time: [torch.randn(batch, HEADS, time, size or time, device="cuda") for size in last]


def by_offset(values: Tensor, **options: Any) -> Tensor:
    """Return causal Gaussian attention of heads that look one back, at themselves and one ahead."""
    return gaussian_attention(values, [head % 3 - 1 for head in range(HEADS)], causal=True, **options)


def with_alibi(query: Tensor, key: Tensor, value: Tensor, copied: bool = False) -> Tensor:
    """Return causal attention with ALiBi, some sequences shorter than others; ``copied``: a bias for each of them."""
    batch, _, time, _ = query.shape
    lengths = torch.linspace(time // 2, time, batch, device="cuda").long()
    bias = AlibiPositions(HEADS, device=torch.device("cuda"))(query, key, 0)[2]
    bias = bias.expand(batch, -1, -1, -1) if copied else bias
    return softmax_attention(query, key, value, causal=True, lengths=lengths, mask=bias)


# With what each is compared: its definition, a bias copied for each sequence, nothing.
OTHER_OPERATORS: dict[str, tuple[Callable[[int, int], list[Tensor]], Call, Call | None]] = {
    "gaussian_attention": (attention_inputs(64), by_offset, partial(by_offset, implementation="reference")),
    f"stratified_stack, m {VECTOR}": (
        stratified,
        stratified_stack,
        partial(stratified_stack, implementation="reference"),
    ),
    "softmax_attention, ALiBi": (attention_inputs(64, 64, 64), with_alibi, partial(with_alibi, copied=True)),
    "hard_attention, sampled": (
        attention_inputs(None, 64),
        lambda *given: hard_attention(*given, sample=True)[0],
        None,
    ),
}
