"""Benchmark cases: each function prepares inputs and returns a function to time.

Inputs and outputs are float32; a step is forward and backward. Run as a script with the name of a case, this module
runs that case once and prints the peak resident memory of its process.
"""

import json
import sys
import time
from collections.abc import Callable

import torch
from memory import resident_bytes
from torch import Tensor
from torch.nn import functional as F

from structattn.attention import StackPointerAttention, SuperpositionStackAttention
from structattn.operators import (
    gaussian_attention,
    hard_attention,
    nondeterministic_stack,
    receptive_field,
    receptive_field_size,
    stack_pointer,
    stack_pointer_weights,
    superposition_stack,
)

Work = Callable[[], object]


def forward_and_backward(operator: Callable[..., Tensor], leaves: list[Tensor], **options: str) -> Work:
    """Return a function that runs forward and backward of an operator with a fixed cotangent."""
    for leaf in leaves:
        leaf.requires_grad_()
    cotangent = torch.randn_like(operator(*leaves, **options)) if options.get("implementation") != "reference" else None

    def work() -> object:
        result = operator(*leaves, **options)
        return torch.autograd.grad(result, leaves, torch.ones_like(result) if cotangent is None else cotangent)

    return work


def nondeterministic(length: int, num_states: int = 2, num_symbols: int = 3, implementation: str = "auto") -> Work:
    """Batch 10, m = 5, as in the paper's models for formal languages."""
    torch.manual_seed(0)
    transition = (10, length, num_states, num_symbols, num_states, num_symbols)
    leaves = [torch.randn(transition), torch.randn(transition), torch.randn(transition[:-1])]
    leaves += [torch.randn(10, length, 5), torch.randn(5)]
    return forward_and_backward(nondeterministic_stack, leaves, implementation=implementation)


def superposition(length: int = 100, implementation: str = "auto") -> Work:
    """Batch 10, m = 32."""
    torch.manual_seed(0)
    leaves = [torch.randn(10, length, 3).softmax(-1), torch.randn(10, length, 32)]
    return forward_and_backward(superposition_stack, leaves, implementation=implementation)


def stack_pointer_maps(length: int = 128, implementation: str = "auto") -> Work:
    """Batch 32."""
    torch.manual_seed(0)
    leaves = [torch.randn(32, length, 3).softmax(-1)]
    return forward_and_backward(stack_pointer_weights, leaves, implementation=implementation)


def stack_pointer_readings(length: int = 128, width: int = 256, implementation: str = "auto") -> Work:
    """Batch 32."""
    torch.manual_seed(0)
    leaves = [torch.randn(32, length, 3).softmax(-1), torch.randn(32, length + 1, width)]
    return forward_and_backward(stack_pointer, leaves, implementation=implementation)


def gaussian(length: int, kernel: str = "full", batch: int = 4, implementation: str = "auto") -> Work:
    """8 causal heads of size 64 with the offsets of the paper's decoders."""
    leaves = [torch.randn(batch, 8, length, 64)]

    def attention(values: Tensor, **options: str) -> Tensor:
        return gaussian_attention(values, [-1, 0] * 4, kernel=kernel, causal=True, **options)

    return forward_and_backward(attention, leaves, implementation=implementation)


def torch_softmax(length: int, batch: int = 4) -> Work:
    """Fused causal attention of torch, with values of the same shape."""
    leaves = [torch.randn(batch, 8, length, 64) for _ in range(3)]
    return forward_and_backward(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), leaves)


def hard(length: int, sample: bool, batch: int = 4) -> Work:
    """8 causal heads of size 64 with given scores: Gumbel-softmax sampling, or argmax."""
    scores, values = torch.randn(batch, 8, length, length), torch.randn(batch, 8, length, 64)
    if sample:
        return forward_and_backward(lambda s, v: hard_attention(s, v, sample=True, causal=True)[0], [scores, values])
    return forward_and_backward(lambda v: hard_attention(scores, v, causal=True)[0], [values])


def softmax_of_scores(length: int, batch: int = 4) -> Work:
    """The baseline of ``hard``: the softmax of the same scores times the values."""
    leaves = [torch.randn(batch, 8, length, length), torch.randn(batch, 8, length, 64)]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    return forward_and_backward(lambda s, v: s.masked_fill(later, -torch.inf).softmax(-1) @ v, leaves)


def receptive(length: int, relaxed: bool, layers: int = 6, batch: int = 4) -> Work:
    """8 causal heads in every layer: the regularizer and its gradient, or the exact receptive fields of choices."""
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = [torch.randn(batch, 8, length, length).masked_fill(later, -torch.inf) for _ in range(layers)]
    if not relaxed:
        choices = [score.argmax(-1) for score in scores]
        return lambda: receptive_field(choices)
    return forward_and_backward(
        lambda *weights: receptive_field_size(receptive_field(weights)), [score.softmax(-1) for score in scores]
    )


def several_stacks(num_heads: int, pointers: bool = False, length: int = 100) -> Work:
    """Batch 10, d = 64, m = 32: a layer of H stacks."""
    torch.manual_seed(0)
    layer = (
        StackPointerAttention(64, num_heads=num_heads)
        if pointers
        else SuperpositionStackAttention(64, 32, num_heads=num_heads)
    )
    return forward_and_backward(lambda x, *_: layer(x), [torch.randn(10, length, 64), *layer.parameters()])


def separate_stacks(num_heads: int, length: int = 100) -> Work:
    """Batch 10, d = 64: the sum of H layers of one superposition stack of 32 / H."""
    torch.manual_seed(0)
    layers = [SuperpositionStackAttention(64, 32 // num_heads) for _ in range(num_heads)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    x = torch.randn(10, length, 64)
    return forward_and_backward(lambda x, *_: sum((layer(x) for layer in layers), x.new_zeros(())), [x, *parameters])


def matrix_product() -> Work:
    """Product of two float64 matrices of 1500 × 1500, which measures the speed of the machine."""
    matrix = torch.randn(1500, 1500, dtype=torch.float64)
    return lambda: matrix @ matrix


def operations(length: int, num_states: int, num_symbols: int) -> float:
    """Return the operations of a nondeterministic step; n³/6 (Q³S + Q²S) multiply-adds forward, twice that backward."""
    return 3 * 2 * 10 * length**3 / 6 * (num_states**3 * num_symbols + num_states**2 * num_symbols)


MEMORY_CASES: dict[str, Callable[[], Work]] = {
    "nondeterministic-100": lambda: nondeterministic(100),
    "nondeterministic-100-reference": lambda: nondeterministic(100, implementation="reference"),
}


def main() -> None:
    """Run the named case once and print its time and the peak resident memory of this process."""
    work = MEMORY_CASES[sys.argv[1]]()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_resident_bytes": resident_bytes()}))


if __name__ == "__main__":
    main()
