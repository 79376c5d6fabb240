"""``torch.library.opcheck`` of every registered operator, on the calls that the catalogue's samples make."""

import pytest
import torch
from catalogue import CATALOGUE
from torch.utils._python_dispatch import TorchDispatchMode
from transforms import Case, differentiable, gradients

from structattn.operators.gaussian_attention.indexed import Gaussians, gaussian_attention_indexed
from structattn.operators.residual_sublayers import (
    AttentionSublayer,
    FeedForwardSublayer,
    StackSublayer,
    StackWeights,
    SublayerWeights,
    residual_sublayers,
)
from structattn.operators.softmax_attention.cpu import softmax_attention_indexed

# Of what these return for the backward pass, parts are never written, so that two calls differ.
UNWRITTEN = {"nondeterministic_stack", "nondeterministic_stack_backward", "stack_rnn", "stack_rnn_backward"}
UNWRITTEN |= {"residual_attention", "residual_feedforward", "residual_stack"}
REQUIRES_GRAD = {"superposition_stack", "stratified_stack", "softmax_attention", "gaussian_attention", "gumbel_softmax"}
REQUIRES_GRAD |= {"residual_attention", "residual_feedforward", "residual_stack"}


class Recorder(TorchDispatchMode):
    """Keeps the last call of each operator of this package."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "structattn":
            self.calls[function] = args
        return function(*args, **(kwargs or {}))


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
        softmax_attention_indexed(torch.randn(2, 2, 1, 3), rows, rows, row_indices)
        record_residual_sublayers()
    return recorder.calls


def record_residual_sublayers():
    x, lengths = torch.randn(2, 3, 4, requires_grad=True), torch.tensor([3, 1])
    for outputs, inputs in ((12, 4), (5, 5)):
        shapes = (4,), (4,), (outputs, 4), (outputs,), (4, inputs), (4,)
        weights = SublayerWeights(*(torch.randn(shape, requires_grad=True) for shape in shapes))
        attention, feedforward = AttentionSublayer(weights, 2, True, 0.1, 0.1), FeedForwardSublayer(weights, 0.1, 0.1)
        y = residual_sublayers(x, [attention if inputs == 4 else feedforward], lengths)
        y.sum().backward()
    stack = StackWeights(*(torch.randn(shape, requires_grad=True) for shape in ((4,), (4,), (42, 4), (4, 8), (2,))))
    residual_sublayers(x, [StackSublayer(stack, 2, 2, dropout=0.1)], lengths).sum().backward()


CALLS = recorded_calls()


def name_of(function):
    return function._schema.name.removeprefix("structattn::")


def test_every_operator_is_checked():
    registered = {
        schema.name.removeprefix("structattn::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("structattn::")
    }
    missing = registered - set(map(name_of, CALLS))
    # Triton's are checked in each test_gpu_kernel.py; test_registration.py registers examples.
    assert {name for name in missing if "_gpu" not in name and not name.startswith("test_")} == set()


@pytest.mark.slow  # every operator's own tests check it, too
@pytest.mark.parametrize("function", CALLS, ids=name_of)
def test_opcheck(function):
    arguments = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in CALLS[function]]
    if name_of(function) in REQUIRES_GRAD:
        arguments = [
            x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in arguments
        ]
    checks = ["test_schema", "test_faketensor", "test_autograd_registration"]
    if name_of(function) not in UNWRITTEN:
        checks.append("test_aot_dispatch_dynamic")
    torch.library.opcheck(function, tuple(arguments), test_utils=checks)
