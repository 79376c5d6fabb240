"""The transforms and modes that every operator of the catalogue goes through, each with an independent expectation.

What torch.func, a compiler or a mode gives for the fast implementation is compared with what the definition gives under
plain autograd, in loops instead of ``vmap``, and by central differences instead of forward mode.
"""

import functools
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from catalogue import FORWARD, REVERSE, SECOND, Operator, Sample
from torch import Tensor, func
from torch.autograd import forward_ad

Function = Callable[..., tuple[Tensor, ...]]
REFUSALS = (
    "double backward is not supported by the CPU kernel; use implementation='reference'",
    "forward-mode derivatives (jvp) are not supported by the kernel; use implementation='reference'",
    "is not differentiable",
    "torch.export is not supported",
    "does not require grad",  # torch's own, for outputs without derivatives
)


@dataclass(frozen=True)
class Case:
    """The fast implementation and the definition of one call, and its arguments."""

    fast: Function
    definition: Function
    tensors: tuple[Tensor, ...]
    lengths: Tensor | None
    takes_lengths: Callable[[Tensor], "Case"]

    @classmethod
    def of(cls, operator: Operator, sample: Sample) -> "Case":
        def function(call: Callable[..., Any], **chosen: str) -> Function:
            def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
                count = len(tensors) - (sample.last is not None)
                named = {} if sample.last is None else {sample.last: tensors[-1]}
                result = call(*tensors[:count], **named, **sample.keywords, **chosen)
                return tuple(result) if isinstance(result, tuple) else (result,)

            return outputs

        def with_lengths(lengths: Tensor) -> Case:
            return cls.of(operator, replace(sample, keywords={**sample.keywords, "lengths": lengths}))

        fast, definition = function(operator.call), function(operator.definition or operator.call)
        if operator.has_implementations and operator.definition is None:
            definition = function(operator.call, implementation="reference")
        return cls(fast, definition, sample.tensors, sample.keywords.get("lengths"), with_lengths)


def floats(f: Function) -> Function:
    return lambda *x: tuple(y for y in f(*x) if y.is_floating_point())


def loss(f: Function) -> Callable[..., Tensor]:
    """A number that depends on every output, and on its square, so that second derivatives differ from zero."""

    def total(*x: Tensor) -> Tensor:
        terms = [(y * direction(y, 5) + 0.5 * y.square()).sum() for y in floats(f)(*x)]
        return functools.reduce(torch.add, terms)

    return total


def direction(x: Tensor, seed: int = 0) -> Tensor:
    count = torch.arange(x.numel(), dtype=x.dtype) + seed
    return torch.sin(1 + 2.3 * count).reshape(x.shape)


def directions(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(map(direction, tensors))


def stacked(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.stack([x, 0.5 * x]) for x in tensors)


def leaves(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.clone().requires_grad_() for x in tensors)


def pulled_back(outputs: tuple[Tensor, ...], x: tuple[Tensor, ...], cotangents: Any = None) -> tuple[Tensor, ...]:
    """``torch.autograd.grad``; zeros where the outputs are empty and without history."""
    if not any(y.requires_grad for y in outputs) and all(y.numel() == 0 for y in x if y.dim() > 1):
        return tuple(map(torch.zeros_like, x))
    return torch.autograd.grad(outputs, x, cotangents, materialize_grads=True)


def gradients(f: Function, *tensors: Tensor) -> tuple[Tensor, ...]:
    x = leaves(tensors)
    return pulled_back((loss(f)(*x),), x)


def differences(f: Function, *tensors: Tensor, step: float = 1e-5) -> tuple[Tensor, ...]:
    """Central differences of fourth order in the directions of ``directions``."""

    def at(scale: float) -> tuple[Tensor, ...]:
        return f(*(x + scale * step * d for x, d in zip(tensors, directions(tensors), strict=True)))

    sides = zip(at(1), at(-1), at(2), at(-2), strict=True)
    return tuple((8 * (a - b) - (c - d)) / (12 * step) for a, b, c, d in sides)


def mapped(f: Function) -> Function:
    """``torch.vmap`` as a loop."""

    def each(*x: Tensor) -> tuple[Tensor, ...]:
        results = [f(*single) for single in zip(*(tensor.unbind(0) for tensor in x), strict=True)]
        return tuple(torch.stack(same) for same in zip(*results, strict=True))

    return each


def all_of(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    return tuple(range(len(tensors)))


def func_gradients(f: Function, tensors: tuple[Tensor, ...]) -> Function:
    return func.grad(loss(f), argnums=all_of(tensors))


# Each transform returns what it gives, and a function that returns what is expected.


def backward(case: Case) -> tuple:
    return gradients(case.fast, *case.tensors), lambda: gradients(case.definition, *case.tensors)


def func_grad(case: Case) -> tuple:
    found = func_gradients(case.fast, case.tensors)(*case.tensors)
    return found, lambda: gradients(case.definition, *case.tensors)


def func_vjp(case: Case) -> tuple:
    outputs, pull = func.vjp(floats(case.fast), *case.tensors)
    x = leaves(case.tensors)
    cotangents = directions(outputs)
    return pull(cotangents), lambda: pulled_back(floats(case.definition)(*x), x, cotangents)


def func_jacrev(case: Case) -> tuple:
    found = func.jacrev(lambda *x: floats(case.fast)(*x)[0], argnums=all_of(case.tensors))(*case.tensors)
    return found, lambda: torch.autograd.functional.jacobian(lambda *x: floats(case.definition)(*x)[0], case.tensors)


def vmap(case: Case) -> tuple:
    x = stacked(case.tensors)
    return torch.vmap(case.fast)(*x), lambda: mapped(case.definition)(*x)


def vmap_last(case: Case) -> tuple:
    *others, last = case.tensors
    x = torch.stack([last, -last], -1)
    found = torch.vmap(case.fast, (*[None] * len(others), last.dim()))(*others, x)
    return found, lambda: mapped(lambda x: case.definition(*others, x))(x.movedim(-1, 0))


def vmap_lengths(case: Case) -> tuple:
    lengths = torch.stack([case.lengths, case.lengths // 2])
    found = torch.vmap(lambda lengths: case.takes_lengths(lengths).fast(*case.tensors))(lengths)
    return found, lambda: mapped(lambda lengths: case.takes_lengths(lengths).definition(*case.tensors))(lengths)


def vmap_grad(case: Case) -> tuple:
    x = stacked(case.tensors)
    found = torch.vmap(func_gradients(case.fast, case.tensors))(*x)
    return found, lambda: mapped(lambda *x: gradients(case.definition, *x))(*x)


def per_sample_gradients(case: Case) -> tuple:
    first, *others = case.tensors
    x = torch.stack([first, 0.5 * first])
    found = torch.vmap(func_gradients(case.fast, case.tensors), (0, *[None] * len(others)))(x, *others)
    return found, lambda: mapped(lambda x: gradients(case.definition, x, *others))(x)


def func_jvp(case: Case) -> tuple:
    _, found = func.jvp(floats(case.fast), case.tensors, directions(case.tensors))
    return found, lambda: differences(floats(case.definition), *case.tensors)


def dual_level(case: Case) -> tuple:
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, d) for x, d in zip(case.tensors, directions(case.tensors), strict=True)]
        found = [forward_ad.unpack_dual(y) for y in floats(case.fast)(*duals)]
    tangents = [torch.zeros_like(y.primal) if y.tangent is None else y.tangent for y in found]
    return tangents, lambda: differences(floats(case.definition), *case.tensors)


def jvp_vmap(case: Case) -> tuple:
    x = stacked(case.tensors)
    _, found = func.jvp(torch.vmap(floats(case.fast)), x, directions(x))
    return found, lambda: differences(mapped(floats(case.definition)), *x)


def vmap_jvp(case: Case) -> tuple:
    x = stacked(case.tensors)
    found = torch.vmap(lambda x: func.jvp(floats(case.fast), x, directions(case.tensors))[1])(x)
    return found, lambda: mapped(lambda *x: differences(floats(case.definition), *x))(*x)


def jvp_grad(case: Case) -> tuple:
    _, found = func.jvp(func_gradients(case.fast, case.tensors), case.tensors, directions(case.tensors))
    return found, lambda: differences(functools.partial(gradients, case.definition), *case.tensors)


def hessian(case: Case) -> tuple:
    first, *others = case.tensors
    found = func.hessian(lambda x: loss(case.fast)(x, *others))(first)
    return [found], lambda: [torch.autograd.functional.hessian(lambda x: loss(case.definition)(x, *others), first)]


def _twice(f: Function, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x = leaves(tensors)
    slopes = torch.autograd.grad(loss(f)(*x), x, create_graph=True, materialize_grads=True)
    return torch.autograd.grad(loss(lambda: slopes)(), x, materialize_grads=True)


def double_backward(case: Case) -> tuple:
    return _twice(case.fast, case.tensors), lambda: _twice(case.definition, case.tensors)


def grad_grad(case: Case) -> tuple:
    twice = func_gradients(func_gradients(case.fast, case.tensors), case.tensors)
    return twice(*case.tensors), lambda: _twice(case.definition, case.tensors)


def compiled(case: Case) -> tuple:
    torch._dynamo.reset()
    f = torch.compile(case.fast, fullgraph=True, backend="aot_eager")
    if not differentiable(case):
        return f(*case.tensors), lambda: case.definition(*case.tensors)
    found = [*f(*case.tensors), *gradients(f, *case.tensors)]
    return found, lambda: [*case.definition(*case.tensors), *gradients(case.definition, *case.tensors)]


def compiled_jvp(case: Case) -> tuple:
    torch._dynamo.reset()
    d = directions(case.tensors)
    f = torch.compile(lambda x: func.jvp(floats(case.fast), x, d)[1], fullgraph=True, backend="aot_eager")
    return f(case.tensors), lambda: differences(floats(case.definition), *case.tensors)


def exported(case: Case) -> tuple:
    class Module(torch.nn.Module):
        def forward(self, *x: Tensor) -> tuple[Tensor, ...]:
            return case.fast(*x)

    found = torch.export.export(Module(), case.tensors).module()(*case.tensors)
    return found, lambda: case.definition(*case.tensors)


def inference_mode(case: Case) -> tuple:
    with torch.inference_mode():
        found = case.fast(*case.tensors)
    return found, lambda: case.definition(*case.tensors)


def autocast(case: Case) -> tuple:
    """bfloat16 arguments: the results are those of the rounded arguments, computed in float32 or better."""
    low = tuple(x.bfloat16() for x in case.tensors)
    with torch.autocast("cpu", torch.bfloat16):
        found = case.fast(*low)
    return found, lambda: case.definition(*(x.double() for x in low))


def _all_outcomes(case: Case) -> list[Tensor]:
    outputs = list(case.fast(*case.tensors))
    return [*outputs, *gradients(case.fast, *case.tensors)] if differentiable(case) else outputs


def differentiable(case: Case) -> bool:
    return any(y.requires_grad for y in floats(case.fast)(*leaves(case.tensors)))


def deterministic(case: Case) -> tuple:
    expected = _all_outcomes(case)
    torch.use_deterministic_algorithms(True)
    try:
        return _exactly(_all_outcomes(case), expected)
    finally:
        torch.use_deterministic_algorithms(False)


def threads(case: Case) -> tuple:
    expected, found = _all_outcomes(case), []
    workers = [threading.Thread(target=lambda: found.append(_all_outcomes(case))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == len(workers)
    return _exactly([y for one in found for y in one], expected * len(workers))


def fork(case: Case) -> tuple:
    expected = _all_outcomes(case)
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            os.write(sender, pickle.dumps([y.numpy() for y in _all_outcomes(case)]))
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        found = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return _exactly([torch.from_numpy(y) for y in found], expected)


def _exactly(found: list[Tensor], expected: list[Tensor]) -> tuple:
    assert len(found) == len(expected)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    return found, lambda: expected


@dataclass(frozen=True)
class Transform:
    """A transform: its name, what it does, the derivatives it needs, and its relative tolerance."""

    name: str
    apply: Callable[[Case], tuple]
    needs: frozenset[str] = frozenset()
    tolerance: float = 1e-10
    slow: bool = False
    needs_lengths: bool = False
    needs_numbers: bool = False

    def refused_by(self, operator: Operator) -> bool:
        return bool({self.name, *self.needs} & operator.refused)

    def fits(self, sample: Sample) -> bool:
        """Whether the sample has what the transform needs; torch's own Jacobians fail for empty tensors."""
        empty = any(x.numel() == 0 for x in sample.tensors)
        return (not self.needs_lengths or "lengths" in sample.keywords) and not (self.needs_numbers and empty)


DIFFERENCES = 2e-8
_FIRST, _SECOND, _FORWARD = frozenset({REVERSE}), frozenset({REVERSE, SECOND}), frozenset({FORWARD})
TRANSFORMS = (
    Transform("backward", backward, _FIRST),
    Transform("func.grad", func_grad, _FIRST),
    Transform("vjp", func_vjp, _FIRST),
    Transform("jacrev", func_jacrev, _FIRST, needs_numbers=True),
    Transform("double backward", double_backward, _SECOND),
    Transform("grad(grad)", grad_grad, _SECOND),
    Transform("vmap", vmap),
    Transform("vmap, last input", vmap_last),
    Transform("vmap, lengths", vmap_lengths, needs_lengths=True),
    Transform("vmap(grad)", vmap_grad, _FIRST),
    Transform("vmap(grad), first input", per_sample_gradients, _FIRST),
    Transform("jvp", func_jvp, _FORWARD, DIFFERENCES),
    Transform("dual_level", dual_level, _FORWARD, DIFFERENCES),
    Transform("jvp(vmap)", jvp_vmap, _FORWARD, DIFFERENCES),
    Transform("vmap(jvp)", vmap_jvp, _FORWARD, DIFFERENCES),
    Transform("jvp(grad)", jvp_grad, _FORWARD, DIFFERENCES),
    Transform("hessian", hessian, _FORWARD, needs_numbers=True),
    Transform("compile", compiled, slow=True),
    Transform("compile(jvp)", compiled_jvp, _FORWARD, DIFFERENCES, slow=True),
    Transform("export", exported, slow=True),
    Transform("inference_mode", inference_mode),
    Transform("autocast", autocast, tolerance=1e-5),
    Transform("deterministic", deterministic),
    Transform("threads", threads),
    Transform("fork", fork),
)


def outcome(operator: Operator, sample: Sample, transform: Transform) -> str:
    """Return "correct" or "refused"; raise AssertionError for a wrong result, and any error that is no refusal."""
    try:
        found, expected = transform.apply(Case.of(operator, sample))
    except Exception as error:
        if any(refusal in str(error) for refusal in REFUSALS):
            return "refused"
        raise
    for x, y in zip(found, expected(), strict=True):
        tolerance = max(transform.tolerance, 4 * torch.finfo(x.dtype).eps if x.is_floating_point() else 0)
        torch.testing.assert_close(x, y.to(x.dtype), rtol=tolerance, atol=tolerance)
    return "correct"
