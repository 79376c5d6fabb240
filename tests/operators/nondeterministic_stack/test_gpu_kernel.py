"""The Triton kernel against the definition: readings, log-weights, weights and every gradient, and the corners.

The error of a result x against its definition r is ‖x - r‖ / max(‖r‖, ‖cotangent‖ for gradients).
"""

import sys

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.gpu import forward as forward_module
from structattn.operators.nondeterministic_stack.gpu import ladder, nondeterministic_stack_gpu, unlimited
from structattn.operators.nondeterministic_stack.reference import reference_readings
from structattn.support.errors import ImplementationUnavailableError

NAN = float("nan")
# The package above it has a function of the module's name, so that no import statement finds this one.
gpu_operator = sys.modules[ladder.__name__.removesuffix(".ladder")]
# What overflows in a compiled kernel warns in an interpreted one; the guard refuses it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def outcome(function, leaves, lengths, window, cotangents):
    """Readings, log-weights, and gradients under one cotangent for each."""
    arguments = checked_arguments(*leaves, *([None, None] if len(leaves) == 3 else []), lengths, window)
    outputs = function(arguments)
    of_outputs = [c.to(x) for c, x in zip(cotangents, outputs, strict=True)]
    gradients = torch.autograd.grad(outputs, leaves, of_outputs, materialize_grads=True)
    return [x.detach().cpu() for x in (*outputs, *gradients)]


def kernel(arguments):
    return nondeterministic_stack_gpu(*arguments, False, False)[:2]


def cotangents_of(tensors, columns):
    generator = torch.Generator().manual_seed(7)
    shapes = [(*tensors[0].shape[:4], columns), tensors[0].shape[:2]]
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def assert_equals_definition(given, device, tolerance, *, lengths=None, window=None, dtype=torch.float64):
    cotangents = cotangents_of(given, given[3].shape[-1] if len(given) == 5 else given[0].shape[1] + 1)
    leaves = [x.to(device, dtype).requires_grad_() for x in given]
    exact = [x.detach().cpu().double().requires_grad_() for x in leaves]
    results = outcome(kernel, leaves, lengths, window, cotangents)
    wanted = outcome(reference_readings, exact, lengths, window, cotangents)
    size = sum(float(c.norm()) ** 2 for c in cotangents) ** 0.5
    for i, (x, r) in enumerate(zip(results, wanted, strict=True)):
        assert x.dtype == dtype
        assert x.shape == r.shape
        assert torch.equal(x == -torch.inf, r == -torch.inf)
        found, definition = (y.double().masked_fill(y == -torch.inf, 0) for y in (x, r))
        error = float((found - definition).norm())
        assert error <= tolerance * max(float(definition.norm()), size if i > 1 else 0.0)
    return results


@pytest.mark.parametrize(
    ("batch", "time", "states", "symbols", "vector", "dtype"),
    [
        (3, 0, 2, 3, 5, torch.float32),
        (0, 3, 2, 3, 5, torch.float32),
        (3, 1, 2, 3, 1, torch.float64),
        pytest.param(3, 2, 1, 2, 5, torch.float32, marks=pytest.mark.slow),
        (1, 2, 1, 2, 33, torch.float32),
        pytest.param(1, 3, 1, 2, 33, torch.float32, marks=pytest.mark.slow),
        pytest.param(1, 3, 2, 3, 5, torch.float64, marks=pytest.mark.slow),
        pytest.param(1, 4, 2, 3, 5, torch.float64, marks=pytest.mark.slow),
        pytest.param(1, 4, 3, 2, 1, torch.float32, marks=pytest.mark.slow),
        pytest.param(1, 7, 1, 2, 33, torch.float32, marks=pytest.mark.slow),
        pytest.param(1, 33, 1, 1, 1, torch.float64, marks=pytest.mark.slow),
    ],
)
def test_kernel_equals_definition(random_inputs, gpu, batch, time, states, symbols, vector, dtype):
    inputs = random_inputs(batch, time, states, symbols, vector, scale=2.0)
    lengths = torch.tensor([time, time // 2, 0][:batch], dtype=torch.int64)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert_equals_definition(inputs.all, gpu, tolerance, lengths=lengths, dtype=dtype)


@pytest.mark.parametrize(
    ("time", "window"),
    [(3, 1), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((4, 1), (5, 3), (7, 1), (7, 3)))],
)
def test_window(random_inputs, gpu, time, window):
    assert_equals_definition(random_inputs(1, time, 1, 2, 1).all, gpu, 1e-10, window=window)


@pytest.mark.slow
@pytest.mark.parametrize(("time", "window"), [(9, 3), (13, None), (17, 3)])
def test_sums_over_several_tiles(random_inputs, gpu, monkeypatch, time, window):
    monkeypatch.setattr(forward_module, "ROWS", 16)
    assert_equals_definition(random_inputs(1, time, 4, 1, 3).all, gpu, 1e-10, window=window)
    assert_equals_definition(random_inputs(1, time, 4, 1).logits, gpu, 1e-10, window=window)


def test_weights_over_positions(random_inputs, gpu):
    assert_equals_definition(random_inputs(1, 3, 2, 1).logits, gpu, 1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize(("states", "symbols", "time", "window"), [(2, 3, 48, None), (3, 3, 40, 7), (4, 2, 20, None)])
def test_kernel_equals_definition_at_full_size(random_inputs, cuda, states, symbols, time, window):
    inputs = random_inputs(3, time, states, symbols, 5, scale=2.0)
    lengths = torch.tensor([time, time - 5, 2])
    assert_equals_definition(inputs.all, cuda, 1e-4, lengths=lengths, window=window, dtype=torch.float32)


@pytest.mark.gpu
def test_kernel_equals_the_other_kernel_beyond_the_definition(random_inputs, cuda):
    inputs = random_inputs(4, 150, 2, 3, 5)
    results = []
    for device, choice in (("cpu", "cpu"), (cuda, "gpu")):
        leaves = [x.to(device).requires_grad_() for x in inputs.all]
        readings = nondeterministic_stack(*leaves, implementation=choice)
        gradients = torch.autograd.grad(readings.square().sum(), leaves)
        results.append([x.detach().cpu() for x in (readings, *gradients)])
    for x, r in zip(*results, strict=True):
        torch.testing.assert_close(x, r, rtol=1e-9, atol=1e-12)


@pytest.mark.gpu
def test_a_captured_graph_marks_what_doubles_lose(random_inputs, cuda):
    """Captured after eager calls alone, which load the kernels in doubles, too."""
    inputs = random_inputs(2, 40, 2, 3, 5)
    inputs.push[1, 0], inputs.push[1, 1:], inputs.pop[1, 2] = -800.0, -torch.inf, 1600.0
    leaves = [x.to(cuda, torch.float32).requires_grad_() for x in inputs.all]

    def step():
        readings = nondeterministic_stack(*leaves, implementation="gpu")
        return readings, *torch.autograd.grad(readings.square().sum(), leaves[:4])

    eager = [x.detach().clone() for x in step()]  # no graph of the default stream stays alive
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    for found, wanted in zip(captured, eager, strict=True):
        torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)
        assert wanted.isfinite().all()
        assert found[1].isnan().all()


def test_a_graph_takes_doubles_where_floats_lose_something(random_inputs, gpu, monkeypatch):
    """The logits of the second sequence are beyond floats, of the third beyond doubles."""
    monkeypatch.setattr(gpu_operator, "capturing", lambda device: True)
    monkeypatch.setattr(ladder, "capturing", lambda device: True)
    inputs = random_inputs(3, 3, 1, 2, 1)
    for sequence, weight in ((1, 80.0), (2, 800.0)):
        inputs.push[sequence, 0], inputs.push[sequence, 1:] = -weight, -torch.inf
        inputs.pop[sequence, 2] = 2 * weight
    leaves = [x.to(gpu, torch.float32).requires_grad_() for x in inputs.all]
    readings = nondeterministic_stack(*leaves, implementation="gpu")
    found = readings, *torch.autograd.grad(readings.square().sum(), leaves[:4])
    exact = [x.detach().cpu().double().requires_grad_() for x in leaves]
    readings = nondeterministic_stack(*exact, implementation="reference")
    wanted = readings, *torch.autograd.grad(readings.square().sum(), exact[:4])
    for x, r in zip(found, wanted, strict=True):
        torch.testing.assert_close(x[:2].cpu().double(), r[:2], rtol=1e-4, atol=1e-5)
        assert x[2].isnan().all()


def test_forbidden_transitions_and_steps(random_inputs, gpu):
    inputs = random_inputs(3, 3, 1, 2, 2)
    inputs.push[0, :, 0, 1] = -torch.inf
    inputs.pop[0, 2] = -torch.inf
    for x in inputs.logits:
        x[1, 2] = -torch.inf  # nothing is allowed
    inputs.push[2] = -torch.inf  # with nothing pushed, a pop would find the bottom
    inputs.replace[2, 1:] = -torch.inf
    results = assert_equals_definition(inputs.all, gpu, 1e-10)
    assert (results[0][1, 2:] == 0).all()
    assert (results[1][1, 2:] == -torch.inf).all()
    assert (results[2][1, 2:] == 0).all()


@pytest.mark.parametrize("extension", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_doubles_lose_is_computed_again(random_inputs, gpu, monkeypatch, extension):
    """A push of weight e^-800 that a later pop raises again, beside a sequence that doubles hold."""
    if not extension:
        monkeypatch.setattr(unlimited, "compiled_kernels", lambda: None)
    inputs = random_inputs(2, 4, 1, 1)
    inputs.push[0, 0] = -800.0
    inputs.push[0, 1:] = -torch.inf
    inputs.pop[0, 2] = 1600.0
    assert_equals_definition(inputs.all, gpu, 1e-10)
    if not extension:
        assert_equals_definition(inputs.logits, gpu, 1e-5, dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [30, 300, 1e4])
def test_wild_logits(random_inputs, gpu, scale):
    assert_equals_definition(random_inputs(1, 4, 2, 1, 2, scale=scale).all, gpu, 1e-10)


@pytest.mark.parametrize(
    ("dtype", "below"), [(torch.float32, 95), pytest.param(torch.float64, 712, marks=pytest.mark.slow)]
)
def test_configurations_far_below_the_others(random_inputs, gpu, dtype, below):
    """The inverse of their share overflows, and matters to no gradient."""
    inputs = random_inputs(1, 3, 1, 2, 1)
    for x in inputs.logits[:2]:
        x[..., 1] -= below
    assert_equals_definition(inputs.all, gpu, 1e-10 if dtype == torch.float64 else 1e-5, dtype=dtype)


@pytest.mark.slow
def test_a_change_of_regime_half_way_loses_nothing(random_inputs, gpu):
    inputs, bias = random_inputs(1, 8, 1, 2, 2), random_inputs(1, 1, 1, 2, scale=30.0, seed=4)
    sign = torch.where(torch.arange(8) < 4, 1.0, -1.0).double()
    logits = [x + sign.view(1, -1, *[1] * (x.dim() - 2)) * b for x, b in zip(inputs.logits, bias.logits, strict=True)]
    assert_equals_definition([*logits, inputs.values, inputs.bottom], gpu, 1e-10)


@pytest.mark.slow
def test_the_guard_sees_what_the_cpu_guard_sees(random_inputs, gpu):
    """Ordinary logits stay in the tables, and only the sequence that needs it leaves them."""
    inputs = random_inputs(2, 3, 1, 2, 1)
    inputs.push[1] *= 1e4
    arguments = checked_arguments(*(x.to(gpu) for x in inputs.all), None)
    assert nondeterministic_stack_gpu(*arguments, False, False)[2].tolist() == [0, 3]


@pytest.mark.slow
def test_past_the_length_nothing_enters_and_nothing_leaves(random_inputs, gpu):
    inputs = random_inputs(3, 4, 1, 2, 2)
    lengths = torch.tensor([4, 2, 0])
    past = torch.arange(4) >= lengths[:, None]
    spoilt = [x.masked_fill(past.view(3, 4, *[1] * (x.dim() - 2)), NAN) for x in (*inputs.logits, inputs.values)]
    cotangents = cotangents_of(inputs.all, 2)
    masked = [c.masked_fill(past.view(3, 4, *[1] * (c.dim() - 2)), NAN) for c in cotangents]
    results = []
    for given, of_outputs in ((inputs.all, cotangents), ([*spoilt, inputs.bottom], masked)):
        leaves = [x.to(gpu).requires_grad_() for x in given]
        results.append(outcome(kernel, leaves, lengths, None, of_outputs))
    for x, r in zip(*results, strict=True):
        assert torch.equal(x, r)
    for x in results[0][:-1]:
        assert (x[past] == 0).all()


def test_nan_stays_in_its_own_sequence_and_from_its_own_step_on(random_inputs, gpu):
    inputs = random_inputs(3, 3, 1, 2, 2)
    inputs.push[1, 2, 0, 0, 0, 0] = NAN
    inputs.pop[2, 0, 0, 0, 0] = torch.inf  # the bottom is not popped, but this is no logit
    cotangents = cotangents_of(inputs.all, 2)
    results = []
    for choice in ("cpu", "gpu"):
        leaves = [x.to("cpu" if choice == "cpu" else gpu).clone().requires_grad_() for x in inputs.all]
        readings = nondeterministic_stack(*leaves, implementation=choice)
        gradients = torch.autograd.grad(readings, leaves, cotangents[0].to(readings))
        results.append([x.detach().cpu() for x in (readings, *gradients)])
    for x, r in zip(*results, strict=True):
        torch.testing.assert_close(x, r, rtol=1e-12, atol=1e-14, equal_nan=True)
    assert results[1][0].isnan().any((2, 3, 4)).tolist() == [[False] * 3, [False, False, True], [True] * 3]


@pytest.mark.slow
def test_public_functions(random_inputs, gpu):
    inputs = random_inputs(2, 3, 1, 2, 2)
    logits = [x.to(gpu) for x in inputs.logits]
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in logits]
    for function in (
        nondeterministic_stack_weights,
        nondeterministic_stack_log_weight,
        nondeterministic_stack_posteriors,
    ):
        results, wanted = (function(*strided, implementation=choice) for choice in ("gpu", "reference"))
        torch.testing.assert_close(results, wanted, rtol=1e-10, atol=1e-12)
    with pytest.raises(ImplementationUnavailableError, match="has no GPU kernel"):
        nondeterministic_stack_best_run(*logits, implementation="gpu")


@pytest.mark.gpu
def test_best_runs_of_tensors_on_a_gpu(random_inputs, cuda):
    logits, lengths = random_inputs(3, 9, 2, 3, 1).logits, torch.tensor([9, 0, 4])
    found = nondeterministic_stack_best_run(*(x.to(cuda) for x in logits), lengths=lengths.to(cuda))
    wanted = nondeterministic_stack_best_run(*logits, lengths=lengths)
    assert all(x.is_cuda for x in found)
    torch.testing.assert_close([x.cpu() for x in found[:3]], list(wanted[:3]), rtol=0, atol=0)
    torch.testing.assert_close(found.log_weight.cpu(), wanted.log_weight, rtol=1e-12, atol=0)  # another order of sums


def test_low_precision(random_inputs, gpu):
    half = [x.to(gpu, torch.bfloat16) for x in random_inputs(1, 3, 1, 2, 2).all]
    assert nondeterministic_stack(*half, implementation="gpu").dtype == torch.bfloat16
    with torch.autocast(gpu.type, torch.bfloat16):
        readings = nondeterministic_stack(*half, implementation="gpu")
    wanted = nondeterministic_stack(*(x.double() for x in half), implementation="reference")
    torch.testing.assert_close(readings.double(), wanted, rtol=1e-2, atol=1e-2)


def test_second_gradient_is_refused(random_inputs, gpu):
    leaves = [x.to(gpu).requires_grad_() for x in random_inputs(1, 2, 1, 1, 1).all]
    readings = nondeterministic_stack(*leaves, implementation="gpu")
    (slope,) = torch.autograd.grad(readings.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        slope.sum().backward()


@pytest.mark.slow
def test_opcheck_and_compilation(random_inputs, gpu):
    inputs = [x.to(gpu, torch.float32).requires_grad_() for x in random_inputs(1, 3, 1, 2, 2).all]
    lengths = torch.tensor([3], device=gpu)
    # The tables' content is the kernel's business, and parts of it are never written.
    torch.library.opcheck(
        nondeterministic_stack_gpu,
        (*inputs, lengths, None, False, False),
        test_utils=["test_schema", "test_faketensor"],
    )

    def loss(*arguments):
        return nondeterministic_stack(*arguments, lengths=lengths, implementation="gpu").square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results, wanted = (torch.autograd.grad(function(*inputs), inputs) for function in (compiled, loss))
    assert all(torch.equal(x, r) for x, r in zip(results, wanted, strict=True))
