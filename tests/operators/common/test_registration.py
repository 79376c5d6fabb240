"""Registration of operators, shown on the cube of a tensor: gradients, batching rule, tangent, refusal."""

import pytest
import torch
from torch.autograd import forward_ad

from structattn.operators.common.registration import refuse_double_backward, register


def _empty(*inputs):
    return torch.empty_like(inputs[0])


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.save_for_forward(*inputs)


@register("test_cube_backward", fake=_empty, gradient=refuse_double_backward("cube", "CPU"))
def cube_backward(cotangent: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return 3 * cotangent * x**2


def _gradient(ctx, cotangent):
    return cube_backward(cotangent, *ctx.saved_tensors)


@register(
    "test_cube", fake=_empty, gradient=_gradient, save=_save, batching_rule=lambda info, dims, x: (cube(x), *dims)
)
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@register("test_cube_with_tangent", fake=_empty, gradient=_gradient, save=_save, tangent=_gradient)
def cube_with_tangent(x: torch.Tensor) -> torch.Tensor:
    return x**3


@pytest.mark.parametrize("operator", [cube, cube_with_tangent])
def test_gradient_and_opcheck(operator):
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(operator, x)
    torch.library.opcheck(operator, (x,))


def test_double_backward_is_refused():
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
    message = "cube: double backward is not supported by the CPU kernel; use implementation='reference'"
    with pytest.raises(NotImplementedError, match=message):
        gradient.sum().backward()


def test_batching_rule():
    x = torch.randn(2, 3)
    torch.testing.assert_close(torch.vmap(cube, in_dims=1, out_dims=1)(x), x**3)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, at first use
def test_tangent():
    x = torch.randn(3)
    with forward_ad.dual_level():
        dual = cube_with_tangent(forward_ad.make_dual(x, torch.ones(3)))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, 3 * x**2)
