"""One step by the Triton kernel against its definition."""

import pytest
import torch

from structattn.operators.superposition_stack import reference, step

STEPS = {
    "superposition_step": ({}, {"depth": 2}, {"depth": 9}),
    "endless_superposition_step": ({},),
}


def leaves(rows, device, dtype=torch.float64):
    generator = torch.Generator().manual_seed(rows)
    shapes = (3, rows, 5), (3, 3), (3, 5)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype) for shape in shapes]


@pytest.fixture
def launches(monkeypatch):
    """The calls of the kernel."""
    calls = []
    kernel = step.superposition_step_gpu
    monkeypatch.setattr(step, "superposition_step_gpu", lambda *given: calls.append(given) or kernel(*given))
    return calls


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_kernel_equals_definition(gpu, launches, monkeypatch, name, rows):
    monkeypatch.setattr(step, "_BLOCK", 8)
    given = leaves(rows, gpu)
    for options in STEPS[name]:
        wanted = getattr(reference, name)(*given, **options)
        torch.testing.assert_close(getattr(step, name)(*given, **options), wanted)
    assert len(launches) == len(STEPS[name])


def test_an_empty_stack_and_low_precision(gpu, launches):
    stack, action, value = leaves(0, gpu, torch.bfloat16)
    wanted = reference.superposition_step(stack, action, value)
    torch.testing.assert_close(step.superposition_step(stack, action, value), wanted)
    mixed = step.superposition_step(stack.float(), action, value)
    assert mixed.dtype == torch.float32
    assert len(launches) == 2


def test_derivatives_are_those_of_the_definition(gpu, launches):
    given = [x.requires_grad_() for x in leaves(3, gpu)]
    assert torch.autograd.gradcheck(step.superposition_step, given)
    assert not launches
    with torch.no_grad():
        step.superposition_step(*given)
    assert len(launches) == 1


def test_batch_of_batches_and_compilation(gpu):
    given = leaves(3, gpu)
    torch.library.opcheck(
        torch.ops.structattn.superposition_step_gpu, (*given, 4, True), test_utils=["test_schema", "test_faketensor"]
    )
    compiled = torch.compile(step.superposition_step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), step.superposition_step(*given))
