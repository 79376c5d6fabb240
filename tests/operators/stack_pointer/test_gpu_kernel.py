"""The Triton kernels against the definition: map, readings and every gradient, and the contract's corners."""

import pytest
import torch

from structattn.operators.common.gpu import interpreted
from structattn.operators.stack_pointer import stack_pointer, stack_pointer_weights
from structattn.support.errors import ImplementationUnavailableError

pytestmark = pytest.mark.usefixtures("short_chunks")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
NAN = float("nan")


def leaves(batch, time, width, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, time, 3, generator=generator, dtype=dtype)
    values = torch.randn(batch, time + 1, width, generator=generator, dtype=dtype)
    return [x.to(device).requires_grad_() for x in ((2 * logits).softmax(-1), values)]


def outcome(implementation, given, cotangent, lengths):
    """The readings and their gradients; without values, the map and its gradient."""
    function = stack_pointer if len(given) == 2 else stack_pointer_weights
    result = function(*given, lengths=lengths, implementation=implementation)
    gradients = torch.autograd.grad(result, given, cotangent.to(result), materialize_grads=True)
    return [x.detach().cpu() for x in (result, *gradients)]


def assert_equals_definition(given, cotangent, lengths, tolerance):
    results = outcome("gpu", given, cotangent, lengths)
    wanted = outcome("reference", [x.detach().cpu().double().requires_grad_() for x in given], cotangent, lengths)
    for x, r in zip(results, wanted, strict=True):
        assert x.dtype == given[0].dtype
        assert x.shape == r.shape
        assert (x.double() - r).norm() <= tolerance * max(float(r.norm()), float(cotangent.norm()))


@pytest.mark.parametrize(
    ("batch", "time", "width", "dtype"),
    [
        (3, 0, 5, torch.float32),
        (0, 4, 5, torch.float32),
        (3, 1, 1, torch.float64),
        (2, 6, 5, torch.float64),
        # So narrow that the stack of values is taken.
        pytest.param(2, 6, 1, torch.float32, marks=pytest.mark.slow),
        pytest.param(3, 2, 5, torch.float32, marks=pytest.mark.slow),
        pytest.param(3, 9, 5, torch.float32, marks=pytest.mark.slow),
        pytest.param(2, 40, 33, torch.float32, marks=pytest.mark.slow),
        pytest.param(2, 33, 11, torch.float64, marks=pytest.mark.slow),
    ],
)
def test_kernel_equals_definition(gpu, batch, time, width, dtype):
    lengths = torch.tensor([time, time // 2, 0][:batch], dtype=torch.int64)
    given = leaves(batch, time, width, dtype, gpu)
    assert_equals_definition(given, torch.randn(batch, time, width).double(), lengths, TOLERANCE[dtype])
    if time:  # the definition of no map at all has no gradient
        cotangent = torch.randn(batch, time, time + 1, dtype=torch.float64)
        assert_equals_definition(given[:1], cotangent, lengths, TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("time", [17, 70])
def test_chunks_of_full_size(gpu, monkeypatch, time):
    monkeypatch.undo()
    given = leaves(2, time, 1, torch.float64, gpu)[:1]
    cotangent = torch.randn(2, time, time + 1, dtype=torch.float64)
    assert_equals_definition(given, cotangent, torch.tensor([time, time - 1]), 1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("time", "width"), [(257, 128), (400, 16)])
def test_kernel_equals_definition_at_full_size(cuda, time, width):
    lengths = torch.tensor([time, time - 31, 100])
    cotangent = torch.randn(3, time, width, dtype=torch.float64)
    assert_equals_definition(leaves(3, time, width, torch.float32, cuda), cotangent, lengths, 1e-4)


@pytest.mark.slow
def test_arguments_need_not_be_contiguous(gpu):
    given = leaves(2, 5, 3, device=gpu)
    strided = [x.detach().mT.contiguous().mT.requires_grad_() for x in given]
    cotangent = torch.randn(2, 3, 5, dtype=torch.float64).mT
    every_other = torch.tensor([5, 0, 3, 0], device=gpu)[::2]
    lengths = every_other.clone()
    for x, r in zip(
        outcome("gpu", strided, cotangent, every_other), outcome("gpu", given, cotangent, lengths), strict=True
    ):
        assert torch.equal(x, r)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 4])
def test_past_the_length_nothing_enters_and_nothing_leaves(gpu, width):
    clean = leaves(3, 6, width, device=gpu)
    lengths = torch.tensor([6, 2, 0])
    past = (torch.arange(6) >= lengths[:, None])[..., None]
    past_values = torch.cat([lengths[:, None, None] == 0, past], 1)
    spoilt = [
        x.detach().masked_fill(mask.to(gpu), NAN).requires_grad_()
        for x, mask in zip(clean, (past, past_values), strict=True)
    ]
    cotangent = torch.randn(3, 6, width, dtype=torch.float64)
    wanted = outcome("gpu", clean, cotangent, lengths)
    for x, r in zip(outcome("gpu", spoilt, cotangent.masked_fill(past, NAN), lengths), wanted, strict=True):
        assert torch.equal(x, r)
    for x, mask in zip(wanted, (past, past, past_values), strict=True):
        assert (x.masked_select(mask.expand_as(x)) == 0).all()


def test_nan_stays_where_it_belongs(gpu):
    actions, values = (x.detach() for x in leaves(1, 6, 3, device=gpu))
    spoilt = values.clone()
    spoilt[0, 3, 1] = NAN
    broken = torch.zeros(1, 6, 3, dtype=torch.bool)
    broken[0, 2:, 1] = True
    assert torch.equal(stack_pointer(actions, spoilt, implementation="gpu").isnan().cpu(), broken)
    actions[0, 2, 0] = NAN
    weights = stack_pointer_weights(actions, implementation="gpu").cpu()
    wanted = stack_pointer_weights(actions.cpu(), implementation="cpu")
    assert torch.equal(weights.isnan(), wanted.isnan())


def test_second_gradient_is_refused(gpu):
    actions, values = leaves(1, 3, 2, device=gpu)
    readings = stack_pointer(actions, values, implementation="gpu")
    (slope,) = torch.autograd.grad(readings.square().sum(), actions, create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        slope.sum().backward()


@pytest.mark.slow
def test_opcheck_and_compilation(gpu):
    given = leaves(2, 3, 2, torch.float32, gpu)
    lengths = torch.tensor([3, 2], device=gpu)
    torch.library.opcheck(
        torch.ops.structattn.stack_pointer_gpu_map,
        (given[0], lengths, False),
        test_utils=["test_schema", "test_faketensor", "test_autograd_registration"],
    )

    def loss(actions, values):
        return stack_pointer(actions, values, lengths=lengths, implementation="gpu").square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for x, r in zip(
        torch.autograd.grad(compiled(*given), given), torch.autograd.grad(loss(*given), given), strict=True
    ):
        assert torch.equal(x, r)


def test_low_precision(gpu):
    half = [x.detach().to(torch.bfloat16) for x in leaves(2, 5, 3, device=gpu)]
    assert stack_pointer(*half, implementation="gpu").dtype == torch.bfloat16
    with torch.autocast(gpu.type, torch.bfloat16):
        readings = stack_pointer(*half, implementation="gpu")
    assert readings.dtype == torch.float32
    wanted = stack_pointer(*(x.double() for x in half), implementation="reference")
    assert (readings - wanted).norm() <= (1e-6 if interpreted() else 1e-3) * wanted.norm()  # TF32 on a device


def test_a_choice_that_cannot_run_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ImplementationUnavailableError, match="the tensors are on cpu"):
        stack_pointer(*leaves(2, 5, 3), implementation="gpu")
