"""``torch.library.opcheck`` of the operators of this package that are called within a block of code."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Keeps the last call of each operator of this package."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "structattn":
            self.calls[function] = args
        return function(*args, **(kwargs or {}))


def name_of(function):
    return function._schema.name.removeprefix("structattn::")


def check(function, call, requires_grad, unwritten):
    """Check an operator on the arguments of a call.

    Args:
        function: the operator.
        call: the arguments.
        requires_grad: whether its tensors get gradients.
        unwritten: parts of what it returns for the backward pass are never written, so that two calls differ.
    """
    arguments = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in call]
    if requires_grad:
        arguments = [
            x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in arguments
        ]
    checks = ["test_schema", "test_faketensor", "test_autograd_registration"]
    if not unwritten:
        checks.append("test_aot_dispatch_dynamic")
    torch.library.opcheck(function, tuple(arguments), test_utils=checks)
