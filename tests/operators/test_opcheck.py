"""``torch.library.opcheck`` of every registered operator, on the calls that the catalogue's samples make."""

import pytest
import torch
from catalogue import CATALOGUE
from opcheck import Recorder, check, name_of
from transforms import Case, differentiable, gradients

from structattn.operators.gaussian_attention.cpu import gaussian_attention_indexed
from structattn.operators.gaussian_attention.reference import Gaussians
from structattn.operators.softmax_attention.cpu import softmax_attention_indexed

# Of what these return for the backward pass, parts are never written, so that two calls differ.
UNWRITTEN = {"nondeterministic_stack", "nondeterministic_stack_backward", "stack_rnn", "stack_rnn_backward"}
REQUIRES_GRAD = {"superposition_stack", "stratified_stack", "softmax_attention", "gaussian_attention", "gumbel_softmax"}


def recorded_calls():
    with Recorder() as recorder:
        for operator in CATALOGUE:
            first = next(iter(operator.samples.values()))
            for sample in (operator.samples.get("lengths", first), first):
                case = Case.of(operator, sample)
                case.definition(*case.tensors)
                case.fast(*case.tensors)
                if differentiable(case):
                    gradients(case.fast, *case.tensors)
        rows, row_indices = torch.randn(5, 2, 3), torch.tensor([[0, 4, 1], [2, 2, 3]])
        gaussian_attention_indexed(rows, row_indices, Gaussians((0.0, 1.0)), first=2)
        softmax_attention_indexed(torch.randn(2, 2, 1, 3), rows, rows, row_indices, None, 1.0)
    return recorder.calls


CALLS = recorded_calls()


def test_every_operator_is_checked():
    registered = {
        schema.name.removeprefix("structattn::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("structattn::")
    }
    missing = registered - set(map(name_of, CALLS))
    # Triton's are checked in each test_gpu_kernel.py, fast forms in tests/fast; test_registration.py has examples.
    assert {name for name in missing if "_gpu" not in name and not name.startswith(("test_", "residual_"))} == set()


@pytest.mark.slow  # every operator's own tests check it, too
@pytest.mark.parametrize("function", CALLS, ids=name_of)
def test_opcheck(function):
    check(function, CALLS[function], name_of(function) in REQUIRES_GRAD, name_of(function) in UNWRITTEN)
