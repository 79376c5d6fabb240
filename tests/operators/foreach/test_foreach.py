"""Operations on lists of tensors, compared with torch's on each tensor."""

import math

import pytest
import torch

from structattn.operators.common.kernels import compiled_kernels
from structattn.operators.foreach import AdamWOptions, adamw_, clip_gradients, tensor_list, total_norm

SHAPES = [(), (0,), (1,), (7, 9), (63,), (2, 3, 64), (1 << 16,), (70001,)]
TOLERANCES = {torch.float64: {"rtol": 1e-13, "atol": 1e-15}, torch.float32: {"rtol": 1e-6, "atol": 1e-7}}
each_precision = pytest.mark.parametrize("dtype", TOLERANCES)
pytestmark = pytest.mark.skipif(compiled_kernels() is None, reason="the compiled extension is not installed")


def tensors(dtype, seed=0, shapes=SHAPES):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in shapes]


@each_precision
@pytest.mark.parametrize("factor", [1.0, 1e-30, 1e30])  # their squares are no float32
def test_norm(dtype, factor):
    given = [factor * x for x in tensors(dtype)]
    expected = math.sqrt(sum(float(x.double().square().sum()) for x in given))
    assert float(total_norm(given)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_norm_of_what_is_not_finite(value):
    given = tensors(torch.float32)
    given[-1][-1] = value
    assert not total_norm(given).isfinite()


@each_precision
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_clipping_is_that_of_torch(dtype, max_norm):
    pairs = [[torch.nn.Parameter(x) for x in tensors(dtype)] for _ in range(2)]
    for parameters in pairs:
        for parameter, gradient in zip(parameters[1:], tensors(dtype, seed=1)[1:], strict=True):  # one has no gradient
            parameter.grad = gradient
    ours, theirs = pairs
    clip_gradients(ours, max_norm, total_norm([parameter.grad for parameter in ours[1:]]))
    torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(one.grad, other.grad, **TOLERANCES[dtype])


@each_precision
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_is_that_of_torch(dtype, weight_decay):
    """Also where tensors have had different numbers of updates."""
    options = AdamWOptions(0.01, 0.8, 0.95, 1e-6, weight_decay)
    parameters = tensors(dtype)
    theirs = [torch.nn.Parameter(x.clone()) for x in parameters]
    torchs = torch.optim.AdamW(theirs, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay, fused=False)
    means, squares = ([torch.zeros_like(x) for x in parameters] for _ in range(2))
    steps = [torch.zeros(()) for _ in parameters]
    for step in range(4):
        first = 3 if step == 1 else 0  # some have no gradient in the second update
        gradients = tensors(dtype, seed=step + 1)
        for index, (parameter, gradient) in enumerate(zip(theirs, gradients, strict=True)):
            parameter.grad = gradient.clone() if index >= first else None
        torchs.step()
        lists = [tensor_list(each[first:]) for each in (parameters, gradients, means, squares)]
        adamw_(*lists, tensor_list(steps[first:]), options)
    for parameter, theirs_, step in zip(parameters, theirs, steps, strict=True):
        torch.testing.assert_close(parameter, theirs_.detach(), **TOLERANCES[dtype])
        assert step == torchs.state[theirs_]["step"]


def test_threads_change_nothing():
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            parameters, gradients, means, squares = (
                tensors(torch.float32, seed, [(700000,), (600001,)]) for seed in range(4)
            )
            norm = total_norm(gradients)
            steps, squares = [torch.zeros(()) for _ in parameters], [x.abs_() for x in squares]
            lists = [tensor_list(each) for each in (parameters, gradients, means, squares, steps)]
            adamw_(*lists, AdamWOptions(0.01, 0.9, 0.99, 1e-8, 0.1))
            found.append([norm, *parameters, *means, *squares])
    finally:
        torch.set_num_threads(before)
    for outcome in found[1:]:
        for one, other in zip(found[0], outcome, strict=True):
            assert torch.equal(one, other)


class Subclass(torch.Tensor):
    """Such as a sharded tensor."""


@pytest.mark.parametrize(
    "given",
    [
        [],
        [torch.zeros(2, dtype=torch.bfloat16)],
        [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
        [torch.zeros(2), torch.zeros(2, device="meta")],
        [torch.zeros(2), torch.zeros(3, 2).t()],
        [torch.zeros(2).as_subclass(Subclass)],
    ],
    ids=["none", "half", "two precisions", "device", "strides", "subclass"],
)
def test_what_the_kernel_is_not_for(given):
    assert tensor_list(given) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"means": (2, 3)}, "means are not"), ({"steps": (3,)}, "steps are not"), ({"squares": torch.float64}, "squares")],
    ids=str,
)
def test_adamw_of_lists_that_do_not_fit_is_refused(wrong, message):
    lists = {name: torch.ones(3, 2) for name in ("parameters", "gradients", "means", "squares")} | {
        "steps": torch.ones(())
    }
    for name, other in wrong.items():
        lists[name] = torch.ones(3, 2, dtype=other) if isinstance(other, torch.dtype) else torch.ones(other)[1:]
    given = [tensor_list([x.contiguous()]) for x in lists.values()]
    with pytest.raises(ValueError, match=message):
        adamw_(*given, AdamWOptions(0.1, 0.9, 0.99, 1e-8, 0.0))
