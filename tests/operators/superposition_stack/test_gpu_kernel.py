"""The Triton kernel against the definition: readings and every gradient, on awkward sizes and with hostile numbers."""

import itertools

import pytest
import torch

from structattn.operators.common.gpu import interpreted
from structattn.operators.superposition_stack import superposition_stack, superposition_stack_weights
from structattn.operators.superposition_stack.gpu import (
    chunks,
    superposition_stack_gpu,
    superposition_stack_gpu_backward,
)
from structattn.operators.superposition_stack.gpu.chunks import Chunks, readings_in_chunks
from structattn.support.errors import ImplementationUnavailableError

pytestmark = pytest.mark.usefixtures("short_chunks")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
NAN = float("nan")


def leaves(batch, time, vector, full, dtype=torch.float64, device="cpu", seed=0):
    """Actions, values and, for a stack that is full at first, the initial row."""
    generator = torch.Generator().manual_seed(seed)
    actions, values, initial = (
        torch.randn(shape, generator=generator, dtype=dtype)
        for shape in ((batch, time, 3), (batch, time, vector), (batch, vector))
    )
    given = [(2 * actions).softmax(-1), values] + ([initial] if full else [])
    return [x.to(device).requires_grad_() for x in given]


def outcome(implementation, given, cotangent, lengths):
    actions, values, *rest = given
    readings = superposition_stack(
        actions, values, initial=rest[0] if rest else None, lengths=lengths, implementation=implementation
    )
    gradients = torch.autograd.grad(readings, given, cotangent.to(readings), materialize_grads=True)
    return [x.detach().cpu() for x in (readings, *gradients)]


def assert_equals_definition(given, cotangent, lengths, tolerance):
    results = outcome("gpu", given, cotangent, lengths)
    exact = [x.detach().cpu().double().requires_grad_() for x in given]
    wanted = outcome("reference", exact, cotangent, lengths)
    for x, r in zip(results, wanted, strict=True):
        assert x.dtype == given[0].dtype
        assert x.shape == r.shape
        assert (x.double() - r).norm() <= tolerance * max(float(r.norm()), float(cotangent.norm()))


@pytest.mark.covering(1)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("batch", "time", "vector", "dtype"),
    [
        (3, 0, 5, torch.float32),
        (0, 4, 5, torch.float32),
        (3, 1, 1, torch.float64),
        (2, 6, 5, torch.float64),  # by the map
        (2, 9, 2, torch.float32),  # by columns
        pytest.param(3, 2, 5, torch.float32, marks=pytest.mark.slow),
        pytest.param(3, 7, 5, torch.float64, marks=pytest.mark.slow),
        pytest.param(3, 8, 3, torch.float32, marks=pytest.mark.slow),
        pytest.param(2, 17, 2, torch.float64, marks=pytest.mark.slow),
        pytest.param(1, 5, 33, torch.float64, marks=pytest.mark.slow),
        pytest.param(1, 33, 1, torch.float32, marks=pytest.mark.slow),
        pytest.param(3, 40, 5, torch.float64, marks=pytest.mark.slow),
    ],
)
def test_kernel_equals_definition(gpu, batch, time, vector, dtype, full):
    lengths = torch.tensor([time, time // 2, 0][:batch], dtype=torch.int64)
    cotangent = torch.randn(batch, time, vector, dtype=torch.float64)
    assert_equals_definition(leaves(batch, time, vector, full, dtype, gpu), cotangent, lengths, TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("time", "vector"), [(16, 3), (40, 17), (129, 2)])
def test_chunks_of_full_size(gpu, monkeypatch, time, vector, full):
    monkeypatch.undo()
    lengths, cotangent = torch.tensor([time, time // 2, 0]), torch.randn(3, time, vector, dtype=torch.float64)
    assert_equals_definition(leaves(3, time, vector, full, device=gpu), cotangent, lengths, 1e-12)


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sequence_does_not_depend_on_the_batch(gpu, monkeypatch, full):
    """Neither on the padding, nor on the part of the batch that a backward pass works on."""
    given, cotangent = leaves(2, 6, 2, full, device=gpu), torch.randn(2, 6, 2, dtype=torch.float64)
    together = outcome("gpu", given, cotangent, torch.tensor([6, 5]))
    monkeypatch.setattr(chunks, "_TABLES", 1)
    for x, r in zip(outcome("gpu", given, cotangent, torch.tensor([6, 5])), together, strict=True):
        assert torch.equal(x, r)
    alone = [x[1:, :5] if x.dim() == 3 else x[1:] for x in given]
    for x, r in zip(outcome("gpu", alone, cotangent[1:, :5], None), together, strict=True):
        assert torch.equal(x, r[1:, :5] if x.dim() == 3 else r[1:])


@pytest.mark.gpu
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("time", "vector"), [(257, 64), (600, 5)])
def test_kernel_equals_definition_at_full_size(cuda, time, vector, full):
    cotangent = torch.randn(3, time, vector, dtype=torch.float64)
    lengths = torch.tensor([time, time - 31, 100])
    assert_equals_definition(leaves(3, time, vector, full, torch.float32, cuda), cotangent, lengths, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_arguments_need_not_be_contiguous(gpu, full):
    given = leaves(2, 5, 3, full, device=gpu)
    strided = [x.detach().mT.contiguous().mT.requires_grad_() for x in given]
    assert not strided[0].is_contiguous()
    cotangent = torch.randn(2, 3, 5, dtype=torch.float64).mT
    every_other = torch.tensor([5, 0, 3, 0], device=gpu)[::2]
    lengths = every_other.clone()
    for x, r in zip(
        outcome("gpu", strided, cotangent, every_other), outcome("gpu", given, cotangent, lengths), strict=True
    ):
        assert torch.equal(x, r)


def test_past_the_length_nothing_enters_and_nothing_leaves(gpu):
    clean = leaves(3, 6, 2, True, device=gpu)
    lengths = torch.tensor([6, 2, 0])
    past = (torch.arange(6) >= lengths[:, None]).to(gpu)[..., None]
    spoilt = [x.detach().masked_fill(past, NAN).requires_grad_() for x in clean[:2]]
    initial = clean[2].detach().clone()
    initial[2] = NAN  # nothing of this sequence is read
    spoilt.append(initial.requires_grad_())
    cotangent = torch.randn(3, 6, 2, dtype=torch.float64)
    wanted = outcome("gpu", clean, cotangent, lengths)
    for x, r in zip(outcome("gpu", spoilt, cotangent.masked_fill(past.cpu(), NAN), lengths), wanted, strict=True):
        assert torch.equal(x, r)
    for x in wanted[:3]:
        assert (x.masked_select(past.cpu().expand_as(x)) == 0).all()


def test_nan_stays_where_it_belongs(gpu):
    actions, values = (x.detach() for x in leaves(2, 6, 3, False, device=gpu))
    values[0, 2, 1] = NAN
    readings = superposition_stack(actions, values, implementation="gpu")
    wanted = torch.zeros(2, 6, 3, dtype=torch.bool)
    wanted[0, 2:, 1] = True
    assert torch.equal(readings.isnan().cpu(), wanted)


def test_weights_and_low_precision(gpu):
    actions, values = leaves(2, 7, 3, False, device=gpu)
    weights = superposition_stack_weights(actions, implementation="gpu")
    torch.testing.assert_close(weights, superposition_stack_weights(actions, implementation="reference"))
    half = [x.detach().to(torch.bfloat16) for x in (actions, values)]
    readings = superposition_stack(*half, implementation="gpu")
    assert readings.dtype == torch.bfloat16
    with torch.autocast(gpu.type, torch.bfloat16):
        readings = superposition_stack(*half, implementation="gpu")
    assert readings.dtype == torch.float32
    wanted = superposition_stack(*(x.double() for x in half), implementation="reference")
    assert (readings - wanted).norm() <= (1e-6 if interpreted() else 1e-3) * wanted.norm()  # TF32 on a device


def test_nan_of_an_action_stays_where_it_belongs(gpu):
    actions, values = (x.detach() for x in leaves(1, 6, 4, False, device=gpu))
    for action, columns in itertools.product(range(3), (2, 4)):  # by columns, and by the map
        spoilt = actions.clone()
        spoilt[0, 2 * action, action] = NAN
        readings = superposition_stack(spoilt, values[..., :columns], implementation="gpu")
        wanted = (torch.arange(6) >= 2 * action)[None, :, None].expand_as(readings)
        assert torch.equal(readings.isnan().cpu(), wanted)


def test_second_gradient_is_refused(gpu):
    actions, values = leaves(1, 3, 2, False, device=gpu)
    readings = superposition_stack(actions, values, implementation="gpu")
    (slope,) = torch.autograd.grad(readings.square().sum(), actions, create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        slope.sum().backward()


@pytest.mark.slow
def test_opcheck_and_compilation(gpu):
    given = leaves(2, 3, 2, True, torch.float32, gpu)
    lengths = torch.tensor([3, 2], device=gpu)

    def loss(actions, values, initial):
        return superposition_stack(
            actions, values, initial=initial, lengths=lengths, implementation="gpu"
        ).square().sum()  # fmt: skip

    torch.library.opcheck(
        torch.ops.structattn.superposition_stack_gpu,
        (*given[:2], lengths, given[2], False),
        test_utils=["test_schema", "test_faketensor", "test_autograd_registration"],
    )
    assert superposition_stack_gpu(*given[:2], lengths, None, False).shape == (2, 3, 2)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert torch.equal(
        torch.cat([x.flatten() for x in torch.autograd.grad(compiled(*given), given)]),
        torch.cat([x.flatten() for x in torch.autograd.grad(loss(*given), given)]),
    )


@pytest.mark.gpu
def test_auto_takes_the_kernel_on_a_device(cuda):
    actions, values = leaves(2, 5, 3, False, torch.float32, cuda)
    assert torch.equal(superposition_stack(actions, values), superposition_stack(actions, values, implementation="gpu"))


def test_a_choice_that_cannot_run_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    actions, values = leaves(2, 5, 3, False)
    with pytest.raises(ImplementationUnavailableError, match="the tensors are on cpu"):
        superposition_stack(actions, values, implementation="gpu")


def test_what_32_bits_cannot_address_is_refused():
    actions, column = torch.zeros(1, 1, 3).expand(1, 100_000, 3), torch.zeros(1, 1, 1).expand(1, 100_000, 1)
    with pytest.raises(ValueError, match=r"superposition_stack: .* [0-9]{10,} elements; .* fewer than 2\^31"):
        superposition_stack_gpu_backward(column, actions, column, torch.tensor([100_000]), None, False)
    actions = torch.empty(1, 46_400, 3, device="meta")
    with pytest.raises(ValueError, match=r"superposition_stack: .* 2153006400 elements; .* fewer than 2\^31"):
        readings_in_chunks(Chunks.of(actions, None, actions[:, 0, 0].long(), None, False))
