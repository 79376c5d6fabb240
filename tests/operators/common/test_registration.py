"""Registration of operators, shown on scaled cubes: gradients, batching rule, forward mode, refusals."""

import pytest
import torch
from torch.autograd import forward_ad

from structattn.operators.common.registration import Batching, refuse_double_backward, register, save_inputs

CALLS = []


def _empty(*inputs):
    return torch.empty_like(inputs[0])


@register("test_cube_backward", fake=_empty, gradient=refuse_double_backward("cube", "CPU"))
def cube_backward(cotangent: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return 3 * cotangent * x**2


def _gradient(ctx, cotangent):
    return cube_backward(cotangent, *ctx.saved_tensors)


@register("test_cube", fake=_empty, gradient=_gradient, save=save_inputs)
def cube(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(x.shape)
    return x**3


@register(
    "test_cube_with_definition", fake=_empty, gradient=_gradient, save=save_inputs, definition=lambda x: x * x * x
)
def cube_with_definition(x: torch.Tensor) -> torch.Tensor:
    return x**3


@register(
    "test_sum",
    fake=_empty,
    batching=Batching(second=["pair"], broadcast=["loose"], shared=["factor"], by_position=["offset"]),
)
def weighted(
    x: torch.Tensor, pair: torch.Tensor, loose: torch.Tensor, factor: torch.Tensor, offset: torch.Tensor | None
) -> torch.Tensor:
    """factor * (x + pair[0] - pair[1] + loose), and the position in the batch is added times the offset."""
    CALLS.append((x.shape, loose.shape))
    result = factor * (x + (pair[0] - pair[1])[:, None] + loose)
    return result if offset is None else result + offset * torch.arange(len(x))[:, None]


@pytest.mark.parametrize("operator", [cube, cube_with_definition])
def test_gradient_and_opcheck(operator):
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(operator, x)
    torch.library.opcheck(operator, (x,))


@pytest.mark.parametrize("transform", [torch.func.grad, lambda f: torch.func.grad(torch.func.grad(f))])
def test_refused_derivatives(transform):
    function = transform(lambda x: torch.func.grad(lambda x: cube(x).sum())(x).sum())
    with pytest.raises(
        NotImplementedError,
        match=r"^cube: double backward is not supported by the CPU kernel; use implementation='reference'$",
    ):
        function(torch.randn(3))


def test_operator_without_gradient():
    x = torch.randn(2, 3, requires_grad=True)
    result = weighted(x, torch.zeros(2, 2), torch.zeros(1, 3), torch.ones(()), None)
    with pytest.raises(NotImplementedError, match="test_sum is not differentiable"):
        result.sum().backward()


def test_batching_rule_folds_the_mapped_dimension():
    CALLS.clear()
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(torch.vmap(cube, in_dims=1, out_dims=1)(x), x**3)
    assert CALLS == [(10, 3)]


MAPPED = [(0, None, None, None), (1, 2, None, None), (None, 0, None, None), (0, 0, 0, None), (None, None, 1, None)]


@pytest.mark.parametrize("in_dims", [*MAPPED, (0, None, None, 0), (None, None, None, 0)])
@pytest.mark.parametrize("loose_batch", [1, 2])
@pytest.mark.parametrize("offset", [None, torch.tensor(0.5)])
def test_batching_rule_of_irregular_inputs(in_dims, loose_batch, offset):
    shapes = (2, 3), (2, 2), (loose_batch, 3), ()
    inputs = [
        torch.randn(shape) if dim is None else torch.randn(*shape[:dim], 4, *shape[dim:])
        for shape, dim in zip(shapes, in_dims, strict=True)
    ]
    singles = [
        [x if dim is None else x.select(dim, n) for x, dim in zip(inputs, in_dims, strict=True)] for n in range(4)
    ]
    expected = torch.stack([weighted(*single, offset) for single in singles])
    CALLS.clear()
    torch.testing.assert_close(torch.vmap(weighted, (*in_dims, None))(*inputs, offset), expected)
    folds = in_dims[3] is None and offset is None
    assert len(CALLS) == (1 if folds else 4)
    if folds and loose_batch == 1 and in_dims[2] is None:
        assert CALLS[0][1] == (1, 3)  # not expanded


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, at first use
class TestForwardMode:
    def test_dual_level(self):
        x = torch.randn(3)
        with forward_ad.dual_level():
            dual = cube_with_definition(forward_ad.make_dual(x, torch.ones(3)))
            torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, 3 * x**2)
            torch.testing.assert_close(cube(x), x**3)  # without a tangent
            with pytest.raises(NotImplementedError, match=r"test_cube: forward-mode derivatives \(jvp\) are not"):
                cube(forward_ad.make_dual(x, torch.ones(3)))

    def test_nested(self):
        x = torch.randn(3, dtype=torch.float64)
        third = torch.func.jacfwd(torch.func.hessian(lambda x: cube_with_definition(x).sum()))(x)
        torch.testing.assert_close(third.sum((0, 1)), torch.full((3,), 6.0, dtype=torch.float64))

    @pytest.mark.parametrize("outer", [torch.func.jacfwd, torch.func.hessian])
    def test_refused(self, outer):
        with pytest.raises(NotImplementedError, match="test_cube: forward-mode derivatives"):
            outer(lambda x: cube(x).sum())(torch.randn(3))

    def test_forward_over_the_backward_kernel_is_refused(self):
        x = torch.randn(3, requires_grad=True)
        y = cube_with_definition(x)
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="test_cube_backward: forward-mode"):
            torch.autograd.grad(y, x, forward_ad.make_dual(torch.ones(3), torch.ones(3)))
