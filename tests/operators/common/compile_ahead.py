"""Compile all GPU kernels, exactly as the operators would launch them, for a GPU that need not be there.

    python compile_ahead.py 90 [all]    # compute capability 9.0; each kernel for the first sizes that it is started
                                        # with, or for all

Runs the operators on CPU tensors with a launcher that compiles instead of starting. Prints one line for each kernel and
set of constants: operator and name, the constants, how many barriers and matrix instructions there are, how many
registers a thread has and how many bytes of memory besides, and how many bytes of machine code. It must be a process of
its own: Triton decides at import whether kernels are interpreted or compiled.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

NAMES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32"}
ALL = "all" in sys.argv
compiled: dict[tuple[str, str], str] = {}


def registers_and_stack(cubin: bytes) -> tuple[int, int]:
    """Return the registers of a thread and the bytes of its stack frame, where registers are spilled to."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        usage = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack = re.findall(r"\b(?:REG|STACK):(\d+)", usage.stdout)
    return int(registers), int(stack)


def compile_instead(kernel: JITFunction, *arguments: object, grid: object, warmup: bool, **options: int) -> None:
    """Stands in for the start of a kernel."""
    constants = {name: options.pop(name) for name in kernel.arg_names if name in options}
    given = dict(zip(kernel.arg_names, arguments, strict=False))
    signature = {name: NAMES[x.dtype] if isinstance(x, torch.Tensor) else "i32" for name, x in given.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    key = (
        f"{kernel.__module__.split('.')[2]} {kernel.__name__}",
        f"{sorted(constants.items())} {options} {sorted(set(signature.values()))}",
    )
    if key not in compiled and (ALL or key[0] not in {name for name, _ in compiled}):
        source = ASTSource(kernel, signature, constants)
        code = triton.compile(source, target=target, options=options).asm
        # A load that the cache for constants may answer would not see what other threads have written.
        assert ".nc" not in code["ptx"]
        registers, stack = registers_and_stack(code["cubin"])
        matrix = code["ptx"].count("mma.sync") + code["ptx"].count("wgmma.mma_async")
        compiled[key] = (
            f"{code['ptx'].count('bar.sync')} barriers {matrix} matrix instructions "
            f"{registers} registers {stack} bytes of stack {len(code['cubin'])} bytes"
        )


def superposition_stack() -> Iterator[Callable[[], object]]:
    """Vectors so narrow that stacks of them are computed, with and without an initial row; and single steps."""
    from structattn.operators.superposition_stack.gpu import superposition_stack_gpu
    from structattn.operators.superposition_stack.step import superposition_step_gpu

    def losses(actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None, tf32: bool) -> Tensor:
        with torch.no_grad():
            superposition_step_gpu(values, actions[:, 0], values[:, 0], 66, initial is not None)
        return superposition_stack_gpu(actions, values, lengths, initial, tf32).sum()

    for width, full, dtype, tf32 in (
        (9, True, torch.float32, False),
        (9, False, torch.float32, False),
        (1, False, torch.float32, True),
        (1, True, torch.float64, False),
    ):
        actions, values = torch.rand(2, 65, 3, dtype=dtype), torch.rand(2, 65, width, dtype=dtype)
        leaves = [x.requires_grad_() for x in (actions, values)]
        initial = values[:, 0] if full else None
        lengths = torch.tensor([65, 3])
        yield lambda a=leaves, n=lengths, i=initial, t=tf32: losses(*a, n, i, t)


def stack_pointer() -> Iterator[Callable[[], object]]:
    """Vectors so wide that the map of stack pointers is computed."""
    from structattn.operators.superposition_stack.gpu import superposition_stack_gpu

    for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.float64, False)):
        actions, values = torch.rand(2, 65, 3, dtype=dtype), torch.rand(2, 66, 64, dtype=dtype)
        leaves, lengths = [x.requires_grad_() for x in (actions, values)], torch.tensor([65, 3])
        yield lambda x=leaves, n=lengths, t=tf32: superposition_stack_gpu(x[0], x[1][:, 1:], n, x[1][:, 0], t).sum()


def nondeterministic_stack() -> Iterator[Callable[[], object]]:
    """Four diagonals of tiles, with the paper's sizes, the smallest, and odd ones with the weights over positions.

    And two single steps: nothing is popped in the first.
    """
    from structattn.operators.nondeterministic_stack.gpu import nondeterministic_stack_gpu
    from structattn.operators.nondeterministic_stack.gpu.steps import GpuState

    def losses(logits: list[Tensor], vectors: tuple[Tensor | None, Tensor | None], lengths: Tensor) -> Tensor:
        with torch.no_grad():
            step, value = tuple(x[:, 0] for x in logits), logits[0].new_zeros(2, 5)
            GpuState.initial(value[0], 2, *step[0].shape[1:3], None).after(step, value).after(step, value)
        return nondeterministic_stack_gpu(*logits, *vectors, lengths, None, False, False)[0].sum()

    for states, symbols, time, dtype in (
        (2, 3, 49, torch.float32),
        (1, 1, 1, torch.float32),
        (3, 3, 40, torch.float64),
    ):
        shape = 2, time, states, symbols, states, symbols
        logits = [torch.randn(s, dtype=dtype).requires_grad_() for s in (shape, shape, shape[:-1])]
        vectors = (torch.randn(2, time, 5), torch.randn(5)) if dtype == torch.float32 else (None, None)
        lengths = torch.tensor([time, 1])
        yield lambda x=logits, v=vectors, n=lengths: losses(x, v, n)


def gaussian_attention() -> Iterator[Callable[[], object]]:
    """A table for all sequences, and tables of their own with lengths."""
    from structattn.operators.gaussian_attention.gpu import gaussian_attention_gpu

    for tables, ends, dtype in ((1, None, torch.float32), (2, torch.tensor([40, 3]), torch.float64)):
        values = torch.randn(2, 3, 40, 64, dtype=dtype).requires_grad_()
        weights, starts = torch.rand(tables, 3, 40, 27, dtype=dtype), torch.zeros(tables, 3, 40, dtype=torch.int64)
        yield lambda v=values, w=weights, s=starts, n=ends: gaussian_attention_gpu(v, w, s, n, n).sum()


if __name__ == "__main__":
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    JITFunction.run = compile_instead
    for operator in (superposition_stack, stack_pointer, nondeterministic_stack, gaussian_attention):
        for outcome in islice(operator(), None if ALL else 1):
            outcome().backward()
    for (name, constants), figures in compiled.items():
        print(name, constants, figures)
