"""What torch asks of an operator: gradcheck, opcheck, compilation, second derivatives refused or right."""

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_weights,
)
from structattn.operators.nondeterministic_stack.cpu import (
    nondeterministic_stack_best_run_cpu,
    nondeterministic_stack_cpu,
)


@pytest.mark.parametrize(
    ("implementation", "batch", "time", "states", "symbols"),
    [
        *(("cpu", *sizes) for sizes in [(1, 1, 1, 1), (2, 2, 2, 1), (1, 7, 1, 2), (1, 4, 2, 2)]),
        *(("reference", *sizes) for sizes in [(1, 1, 1, 1), (2, 2, 2, 1), (1, 3, 1, 2)]),  # it takes long
        pytest.param("reference", 1, 4, 1, 2, marks=pytest.mark.slow),
        pytest.param("reference", 1, 3, 2, 2, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_finite_differences(random_inputs, batch, time, states, symbols, implementation):
    inputs = random_inputs(batch, time, states, symbols, vector=2)
    leaves = [x.requires_grad_() for x in inputs.all]

    def outputs(*arguments):
        return (
            nondeterministic_stack(*arguments, implementation=implementation),
            nondeterministic_stack_weights(*arguments[:3], implementation=implementation),
            nondeterministic_stack_log_weight(*arguments[:3], implementation=implementation),
        )

    assert torch.autograd.gradcheck(outputs, leaves)


def test_definition_has_a_second_derivative_and_the_kernel_refuses_one(random_inputs):
    inputs = random_inputs(1, 3, 1, 2, vector=1)
    leaves = [x.requires_grad_() for x in inputs.all]
    assert torch.autograd.gradgradcheck(lambda *a: nondeterministic_stack(*a, implementation="reference"), leaves)
    readings = nondeterministic_stack(*leaves, implementation="cpu")
    (slope,) = torch.autograd.grad(readings.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        slope.sum().backward()


@pytest.mark.parametrize("with_values", [True, False])
def test_opcheck(random_inputs, with_values):
    inputs = random_inputs(2, 5, 2, 2)
    optional = (inputs.values.requires_grad_(), inputs.bottom.requires_grad_()) if with_values else (None, None)
    logits = [x.requires_grad_() for x in inputs.logits]
    arguments = (*logits, *optional, torch.tensor([5, 3]), None, False)
    # The tables' content is the kernel's business, and parts of it are never written.
    torch.library.opcheck(nondeterministic_stack_cpu, arguments, test_utils=["test_schema", "test_faketensor"])
    torch.library.opcheck(
        nondeterministic_stack_best_run_cpu, (*(x.detach() for x in logits), torch.tensor([5, 3]), None)
    )


def test_compiles_without_a_break(random_inputs):
    inputs = random_inputs(2, 6, 2, 2).to(torch.float32)
    lengths = torch.tensor([6, 4])

    def loss(*arguments):
        return nondeterministic_stack(*arguments, lengths=lengths).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    eager = [x.clone().requires_grad_() for x in inputs.all]
    traced = [x.clone().requires_grad_() for x in inputs.all]
    expected, result = loss(*eager), compiled(*traced)
    assert torch.equal(result, expected)
    expected.backward()
    result.backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(traced, eager, strict=True))
