"""What torch asks of an operator: gradcheck, opcheck, compilation, second derivatives refused or right."""

import pytest
import torch

from structattn.operators.common.kernels import kernel_module
from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_best_run,
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


def strided(x):
    """Return the same numbers in every second place."""
    return torch.stack([x, x], -1)[..., 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strides_change_nothing(random_inputs, dtype):
    inputs, lengths = random_inputs(2, 4, 2, 2).to(dtype), torch.tensor([4, 3])
    outcomes = []
    for layout in (torch.Tensor.contiguous, strided):
        leaves = [layout(x).requires_grad_() for x in inputs.all]
        readings = nondeterministic_stack(*leaves, lengths=layout(lengths), implementation="cpu")
        weights = nondeterministic_stack_weights(*leaves[:3], lengths=layout(lengths), implementation="cpu")
        gradients = torch.autograd.grad(readings.square().sum() + weights.square().sum(), leaves)
        run = nondeterministic_stack_best_run(*leaves[:3], lengths=layout(lengths), implementation="cpu")
        outcomes.append([readings, weights, *gradients, run.actions, run.states, run.symbols, run.log_weight])
    assert all(torch.equal(found, expected) for expected, found in zip(*outcomes, strict=True))


def test_vmap_over_batches_of_one(random_inputs):
    logits = [x[:, None] for x in random_inputs(3, 4, 2, 2).logits]
    found = torch.vmap(nondeterministic_stack_weights)(*logits)
    expected = nondeterministic_stack_weights(*(x[:, 0] for x in logits))
    torch.testing.assert_close(found[:, 0], expected, rtol=1e-12, atol=1e-13)


def test_the_kernel_refuses_tensors_that_it_would_have_to_copy(random_inputs):
    inputs = random_inputs(2, 4, 2, 2)
    outputs = torch.empty(2, 4, 2, 2, 5), torch.empty(2, 4), torch.empty(2, 5000, dtype=torch.float64)
    with pytest.raises(TypeError, match="incompatible function arguments"):  # outputs in float32
        kernel_module().nondeterministic_stack_forward(
            *inputs.logits, None, None, torch.tensor([4, 3]), 9, *outputs, 1, False
        )


def test_best_runs_of_the_definition_in_inference_mode(random_inputs):
    logits = random_inputs(2, 4, 2, 2).logits
    expected = nondeterministic_stack_best_run(*logits, implementation="reference")
    with torch.inference_mode():
        found = nondeterministic_stack_best_run(*(x.clone() for x in logits), implementation="reference")
    assert torch.equal(found.actions, expected.actions)
    assert torch.equal(found.log_weight, expected.log_weight)
