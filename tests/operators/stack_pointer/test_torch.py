"""What torch asks of an operator: gradcheck, opcheck, compilation, second derivatives refused or right."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from structattn.operators import stack_pointer, stack_pointer_weights
from structattn.operators.stack_pointer.cpu import readings_by_map, readings_by_stack


def by_definition(actions, values, lengths=None):
    return stack_pointer(actions, values, lengths=lengths, implementation="reference")


READINGS = [by_definition, readings_by_map, readings_by_stack]


@pytest.mark.covering(1)
@pytest.mark.parametrize("way", READINGS)
@pytest.mark.parametrize("time", [1, 2, 7])
@pytest.mark.parametrize("normalized", [True, False])
def test_gradients_are_those_of_finite_differences(random_inputs, way, time, normalized):
    lengths = torch.tensor([time, time - 1])
    leaves = random_inputs(2, time, 3, normalized=normalized)
    assert gradcheck(lambda a, v: way(a, v, lengths), leaves)
    assert gradcheck(lambda a: stack_pointer_weights(a, lengths=lengths), leaves[:1])


def test_gradcheck_at_63(random_inputs):
    for way in (readings_by_map, readings_by_stack):
        assert gradcheck(way, (*random_inputs(1, 63, 2), None), fast_mode=True)
        assert gradcheck(way, (*random_inputs(1, 2, 63), None), fast_mode=True)


def test_definition_has_a_second_derivative(random_inputs):
    actions, values = random_inputs(1, 3, 2)
    assert gradgradcheck(by_definition, (actions, values))
    assert gradgradcheck(lambda a: stack_pointer_weights(a, implementation="reference"), (actions,))


@pytest.mark.parametrize("way", [readings_by_map, readings_by_stack])
def test_kernels_refuse_a_second_derivative(random_inputs, way):
    actions, values = random_inputs(1, 3, 2)
    (first,) = torch.autograd.grad(way(actions, values, None).square().sum(), actions, create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        first.sum().backward()


def test_operators_are_well_registered(random_inputs):
    actions, values = random_inputs(2, 4, 3)
    ops = torch.ops.structattn
    for lengths in (None, torch.tensor([4, 2])):
        weights = stack_pointer_weights(actions, lengths=lengths).detach()
        cotangents = torch.ones_like(weights), torch.ones(2, 4, 3, dtype=torch.float64)
        torch.library.opcheck(ops.stack_pointer_map.default, (actions, lengths))
        torch.library.opcheck(ops.stack_pointer_product.default, (weights.clone().requires_grad_(), values, lengths))
        plain = actions.detach(), values.detach()
        torch.library.opcheck(ops.stack_pointer_map_backward.default, (cotangents[0], plain[0], weights, lengths))
        torch.library.opcheck(ops.stack_pointer_product_backward.default, (cotangents[1], weights, plain[1], lengths))


@pytest.mark.parametrize("way", READINGS)
def test_compiles_without_a_break(random_inputs, way):
    actions, values = random_inputs(2, 4, 3)
    lengths = torch.tensor([4, 2])

    def program(actions, values):
        return way(actions, values, lengths).sin()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(actions, values).sum(), (actions, values))
    found = torch.autograd.grad(compiled(actions, values).sum(), (actions, values))
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_public_functions_compile(random_inputs):
    actions, values = random_inputs(2, 4, 3)
    lengths = torch.tensor([4, 2])

    def program(actions, values):
        weights = stack_pointer_weights(actions, lengths=lengths)
        return stack_pointer(actions, values, lengths=lengths).sum() + weights.square().sum()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(actions, values), (actions, values))
    found = torch.autograd.grad(compiled(actions, values), (actions, values))
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted)
