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

from structattn.attention import StackPointerAttention, SuperpositionStackAttention
from structattn.operators import nondeterministic_stack, superposition_stack

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
