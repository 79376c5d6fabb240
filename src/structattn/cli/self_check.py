"""Compare every implementation of every operator with its reference on a small example."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from structattn.operators import (
    RecurrentStack,
    gaussian_attention,
    nondeterministic_stack,
    softmax_attention,
    stack_pointer,
    stack_rnn,
    stratified_stack,
    superposition_stack,
)
from structattn.operators.common.implementation import Implementation
from structattn.support.errors import ImplementationUnavailableError
from structattn.support.seeds import derived_seed

IMPLEMENTATIONS: tuple[Implementation, ...] = ("reference", "cpu", "gpu")
TOLERANCE = 1e-5  # relative, in float32; the tests of the operators are stricter
_BATCH, _TIME = 2, 13


class Operator(NamedTuple):
    """An operator: its public name, the shapes of its tensors, and its result from these and the implementation."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[[list[Tensor], Implementation], Tensor]


@dataclass(frozen=True)
class Outcome:
    """The result of checking one implementation.

    Args:
        operator: its name.
        implementation: ``reference``, ``cpu`` or ``gpu``.
        error: the maximum of ‖x - r‖ / ‖r‖ for the result and ‖x - r‖ / max(‖r‖, ‖cotangent‖) for the gradients;
            None if the implementation is not available.
        reason: why it is not available.
    """

    operator: str
    implementation: str
    error: float | None
    reason: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the implementation does not match the reference."""
        return self.error is not None and not self.error <= TOLERANCE


_UNITS = 5
_STACKS = (
    RecurrentStack("superposition", 4),
    RecurrentStack("stratified", 4, pushed="tanh"),
    RecurrentStack("nondeterministic", 3, states=2, symbols=2),
)


def _stack_rnn(stack: RecurrentStack) -> Operator:
    """Return the operator of an LSTM with a stack."""
    gates, outputs = 4 * _UNITS, stack.action_size + stack.vector
    maps = (gates, _UNITS + stack.reading_size), (outputs, _UNITS), (outputs,), (stack.vector,)
    return Operator(
        f"stack_rnn, {stack.name}",
        ((_BATCH, _TIME, gates), *maps),
        lambda given, choice: stack_rnn(
            given[0], *(tensor / 2 for tensor in given[1:]), cell="lstm", stack=stack, implementation=choice
        ),
    )


def operators() -> list[Operator]:
    """Return all operators with several implementations."""
    states, symbols, vector = 2, 3, 4
    push = (_BATCH, _TIME, states, symbols, states, symbols)
    heads = (_BATCH, 2, _TIME, vector)
    return [
        Operator(
            "gaussian_attention",
            (heads,),
            lambda given, choice: gaussian_attention(given[0], [-1, 0.5], causal=True, implementation=choice),
        ),
        Operator(
            "softmax_attention",
            (heads, heads, heads),
            lambda given, choice: softmax_attention(*given, causal=True, implementation=choice),
        ),
        Operator(
            "stack_pointer",
            ((_BATCH, _TIME, 3), (_BATCH, _TIME + 1, vector)),
            lambda given, choice: stack_pointer(given[0].softmax(-1), given[1], implementation=choice),
        ),
        Operator(
            "superposition_stack",
            ((_BATCH, _TIME, 3), (_BATCH, _TIME, vector)),
            lambda given, choice: superposition_stack(given[0].softmax(-1), given[1], implementation=choice),
        ),
        Operator(
            "stratified_stack",
            ((_BATCH, _TIME, 2), (_BATCH, _TIME, vector)),
            lambda given, choice: stratified_stack(given[0].sigmoid(), given[1], implementation=choice),
        ),
        *(_stack_rnn(stack) for stack in _STACKS),
        Operator(
            "nondeterministic_stack",
            (push, push, push[:-1], (_BATCH, _TIME, vector), (vector,)),
            lambda given, choice: nondeterministic_stack(*given, implementation=choice),
        ),
    ]


def _results(
    operator: Operator, implementation: Implementation, place: torch.device | torch.dtype
) -> tuple[list[Tensor], float]:
    """Return the result with the gradients of a weighted sum, and the norm of the weights, for reproducible inputs."""
    generator = torch.Generator().manual_seed(derived_seed(1, operator.name))
    given = [torch.randn(shape, generator=generator).to(place).requires_grad_() for shape in operator.shapes]
    result = operator.call(given, implementation)
    weights = torch.randn(result.shape, generator=generator).to(place)
    gradients = torch.autograd.grad((result * weights).sum(), given, materialize_grads=True)
    return [tensor.detach().cpu().double() for tensor in (result, *gradients)], float(weights.norm())


def check(operator: Operator, implementation: Implementation) -> Outcome:
    """Compare an implementation in float32 with the reference in float64."""
    device = "cuda" if implementation == "gpu" and torch.cuda.is_available() else "cpu"
    try:
        results, cotangent = _results(operator, implementation, torch.device(device))
    except ImplementationUnavailableError as error:
        return Outcome(operator.name, implementation, None, str(error).rpartition(": ")[2])
    expected, _ = _results(operator, "reference", torch.float64)
    scales = [float(r.norm()) for r in expected]
    scales[1:] = [max(scale, cotangent) for scale in scales[1:]]
    errors = [float((x - r).norm()) / scale for x, r, scale in zip(results, expected, scales, strict=True)]
    return Outcome(operator.name, implementation, max(errors))


def all_outcomes() -> list[Outcome]:
    """Check every implementation of every operator, in a second or two."""
    return [check(operator, implementation) for operator in operators() for implementation in IMPLEMENTATIONS]
