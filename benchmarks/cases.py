"""What is measured: each case prepares its inputs and gives a function to time.

Inputs and outputs are float32; "step" is forward plus backward. Run as a script with a case's name, it runs that case
once and prints the peak resident memory of its process, which is how memory is compared.
"""

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from structattn.operators import nondeterministic_stack, superposition_stack

Work = Callable[[], object]


def forward_and_backward(operator: Callable[..., Tensor], leaves: list[Tensor], **options: str) -> Work:
    """One step of an operator under a fixed cotangent."""
    for leaf in leaves:
        leaf.requires_grad_()
    cotangent = torch.randn_like(operator(*leaves, **options)) if options.get("implementation") != "reference" else None

    def work() -> object:
        result = operator(*leaves, **options)
        return torch.autograd.grad(result, leaves, torch.ones_like(result) if cotangent is None else cotangent)

    return work


def nondeterministic(length: int, states: int = 2, symbols: int = 3, implementation: str = "auto") -> Work:
    """Batch 10, m 5, as the paper's models for formal languages."""
    torch.manual_seed(0)
    transition = (10, length, states, symbols, states, symbols)
    leaves = [torch.randn(transition), torch.randn(transition), torch.randn(transition[:-1])]
    leaves += [torch.randn(10, length, 5), torch.randn(5)]
    return forward_and_backward(nondeterministic_stack, leaves, implementation=implementation)


def superposition(length: int = 100, implementation: str = "auto") -> Work:
    """Batch 10, m 32."""
    torch.manual_seed(0)
    leaves = [torch.randn(10, length, 3).softmax(-1), torch.randn(10, length, 32)]
    return forward_and_backward(superposition_stack, leaves, implementation=implementation)


def matrix_product() -> Work:
    """Two float64 matrices of 1500 × 1500: the machine's rate."""
    matrix = torch.randn(1500, 1500, dtype=torch.float64)
    return lambda: matrix @ matrix


def operations(length: int, states: int, symbols: int) -> float:
    """Multiply-adds, counted as two, of a nondeterministic step: n³/6 (Q³S + Q²S), backward twice forward."""
    return 3 * 2 * 10 * length**3 / 6 * (states**3 * symbols + states**2 * symbols)


MEMORY_CASES: dict[str, Callable[[], Work]] = {
    "nondeterministic-100": lambda: nondeterministic(100),
    "nondeterministic-100-reference": lambda: nondeterministic(100, implementation="reference"),
}


def peak_resident_bytes() -> int:
    """The most memory that this program has had at once.

    Where it can be read it is VmHWM: ru_maxrss also remembers the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run the named case once and print its seconds and this process's peak resident memory."""
    work = MEMORY_CASES[sys.argv[1]]()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_resident_bytes": peak_resident_bytes()}))


if __name__ == "__main__":
    main()
