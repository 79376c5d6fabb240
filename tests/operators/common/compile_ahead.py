"""Compile the GPU kernels of one operator for a GPU that need not be there, exactly as the operator would launch them.

    python compile_ahead.py OPERATOR

Runs the operator on CPU tensors with a launcher that compiles instead of starting. Prints one line for each kernel and
set of constants: its name, the constants, and how many lines of PTX and barriers came out. It must be a process of its
own: Triton decides at import whether kernels are interpreted or compiled.
"""

import sys
from collections.abc import Callable, Iterator

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

HOPPER = GPUTarget("cuda", 90, 32)
NAMES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64", torch.int32: "*i32"}
compiled: dict[tuple[str, str], str] = {}


def compile_instead(kernel: JITFunction, *arguments: object, grid: object, warmup: bool, **options: int) -> None:
    """Stands in for the start of a kernel."""
    constants = {name: options.pop(name) for name in kernel.arg_names if name in options}
    given = dict(zip(kernel.arg_names, arguments, strict=False))
    signature = {name: NAMES[x.dtype] if isinstance(x, torch.Tensor) else "i32" for name, x in given.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    key = kernel.__name__, f"{sorted(constants.items())} {options} {sorted(set(signature.values()))}"
    if key not in compiled:
        source = ASTSource(kernel, signature, constants)
        compiled[key] = triton.compile(source, target=HOPPER, options=options).asm["ptx"]


def superposition_stack() -> Iterator[Callable[[], object]]:
    """With and without an initial row, narrow and wide."""
    from structattn.operators.superposition_stack.gpu import superposition_stack_gpu_op

    for dtype in (torch.float32, torch.float64):
        for width in (1, 64):
            actions, values = torch.rand(2, 65, 3, dtype=dtype), torch.rand(2, 65, width, dtype=dtype)
            for initial in (None, values[:, 0]):
                leaves = [x.requires_grad_() for x in (actions, values)]
                lengths = torch.tensor([65, 3])
                yield lambda a=leaves, n=lengths, i=initial: superposition_stack_gpu_op(*a, n, i).sum()


def stack_pointer() -> Iterator[Callable[[], object]]:
    """Short and long."""
    from structattn.operators.stack_pointer.gpu import stack_pointer_gpu_map_op

    for dtype in (torch.float32, torch.float64):
        for time in (1, 7, 100):
            actions = torch.rand(2, time, 3, dtype=dtype, requires_grad=True)
            lengths = torch.tensor([time, 1])
            yield lambda a=actions, n=lengths: stack_pointer_gpu_map_op(a, n).sum()


if __name__ == "__main__":
    JITFunction.run = compile_instead
    for outcome in globals()[sys.argv[1]]():
        outcome().backward()
    for (name, constants), ptx in compiled.items():
        print(name, constants, ptx.count("\n"), "lines", ptx.count("bar.sync"), "barriers")
