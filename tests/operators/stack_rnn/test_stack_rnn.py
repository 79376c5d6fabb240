"""Recurrent networks with stacks: the kernel against the definition, and the contract's corners."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from structattn.operators import RecurrentStack, stack_rnn
from structattn.operators.stack_rnn.cpu import encoded

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu"]
STACKS = {
    "superposition": RecurrentStack("superposition", 3),
    "superposition, wide": RecurrentStack("superposition", 35, pushed="none"),
    "superposition, depth": RecurrentStack("superposition", 3, pushed="none", depth=2),
    "stratified": RecurrentStack("stratified", 3, pushed="tanh"),
    "nondeterministic": RecurrentStack("nondeterministic", 2, states=2, symbols=2),
    "nondeterministic, window": RecurrentStack("nondeterministic", 2, states=1, symbols=3, pushed="exp", window=2),
    "nondeterministic, three states": RecurrentStack("nondeterministic", 6, states=3, symbols=2),
    "nondeterministic, large": RecurrentStack("nondeterministic", 1, states=4, symbols=1),
}


def outcome(leaves, cotangent, lengths=None, **choice):
    hiddens = stack_rnn(*leaves, lengths=lengths, **choice)
    return [hiddens, *torch.autograd.grad(hiddens, leaves, cotangent, materialize_grads=True)]


def assert_close(found, expected, tolerance, floor=0.0):
    for result, wanted in zip(found, expected, strict=True):
        error = (result.double() - wanted.double()).norm()
        assert error <= tolerance * max(wanted.double().norm().item(), floor)


def compared(leaves, cotangent, lengths, tolerance, **choice):
    found = outcome(leaves, cotangent, lengths, implementation="cpu", **choice)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = outcome(exact, cotangent.double(), lengths, implementation="reference", **choice)
    assert all(result.dtype == leaves[0].dtype for result in found)
    assert_close(found, expected, tolerance, cotangent.norm().item())


def test_autocast_around_backward_does_not_reach_the_gradients_of_the_maps(random_network):
    choice = {"cell": "lstm", "stack": STACKS["superposition"], "implementation": "cpu"}
    leaves, cotangent = random_network(3, 7, 5, "lstm", choice["stack"], torch.float32), torch.ones(3, 7, 5)
    hiddens = stack_rnn(*leaves, **choice)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(hiddens, leaves, cotangent, materialize_grads=True)
    assert_close(found, outcome(leaves, cotangent, **choice)[1:], 0)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cell", ["lstm", "tanh", "relu"])
@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("time", [0, 1, 2, 7])
@pytest.mark.parametrize("units", [1, 5, 64])
def test_kernel_equals_definition(random_network, dtype, cell, name, time, units):
    stack = STACKS[name]
    leaves = random_network(3, time, units, cell, stack, dtype)
    cotangent = torch.randn(3, time, units, dtype=dtype, generator=torch.Generator().manual_seed(9))
    lengths = torch.tensor([time, time // 2, 0])
    compared(leaves, cotangent, lengths, 3 * TOLERANCE[dtype], cell=cell, stack=stack)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name",
    [
        *("superposition", "superposition, wide", "superposition, depth", "stratified"),
        *("nondeterministic, window", pytest.param("nondeterministic", marks=pytest.mark.slow)),
    ],
)
def test_kernel_equals_definition_at_63(random_network, dtype, name):
    stack = STACKS[name]
    leaves = random_network(2, 63, 5, "lstm", stack, dtype)
    cotangent = torch.randn(2, 63, 5, dtype=dtype, generator=torch.Generator().manual_seed(9))
    compared(leaves, cotangent, torch.tensor([63, 40]), 10 * TOLERANCE[dtype], cell="lstm", stack=stack)


def fixed_size_stack_network(inputs, recurrent, heads, bias, depth):
    """Elman network with a stack of fixed size, a matrix (Joulin & Mikolov 2015, Delétang et al. 2023)."""
    batch, units, vector = inputs.shape[0], heads.shape[1], heads.shape[0] - 3
    hidden, stack, hiddens = inputs.new_zeros(batch, units), inputs.new_zeros(batch, depth, vector), []
    for x in inputs.unbind(1):
        hidden = torch.tanh(x + torch.cat([hidden, stack[:, 0]], -1) @ recurrent.t())
        hiddens.append(hidden)
        outputs = hidden @ heads.t() + bias
        push, noop, pop = outputs[:, :3].softmax(-1)[..., None, None].unbind(1)
        pushed = torch.cat([outputs[:, None, 3:], stack[:, :-1]], 1)
        popped = torch.cat([stack[:, 1:], torch.zeros_like(stack[:, :1])], 1)
        stack = push * pushed + noop * stack + pop * popped
    return torch.stack(hiddens, 1)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 20])
def test_a_stack_of_limited_depth_is_a_matrix_of_fixed_size(random_network, implementation, depth):
    stack = RecurrentStack("superposition", 3, pushed="none", depth=depth)
    inputs, recurrent, heads, bias, bottom = random_network(2, 11, 4, "tanh", stack)
    found = stack_rnn(inputs, recurrent, heads, bias, bottom, cell="tanh", stack=stack, implementation=implementation)
    expected = fixed_size_stack_network(inputs, recurrent, heads, bias, depth)
    leaves, weight = (inputs, recurrent, heads, bias), torch.randn(found.shape, dtype=found.dtype)
    gradients, wanted = (torch.autograd.grad((result * weight).sum(), leaves) for result in (found, expected))
    assert_close([found, *gradients], [expected, *wanted], 1e-12)
    unlimited = fixed_size_stack_network(inputs, recurrent, heads, bias, 11)
    assert torch.allclose(found, unlimited, 0, 1e-13) == (
        depth >= 5
    )  # a row below the fifth is not read within 11 steps


@pytest.mark.parametrize("name", STACKS)
def test_weights_far_beyond_a_double_are_no_trouble(random_network, name):
    inputs, recurrent, heads, bias, bottom = random_network(2, 12, 4, "lstm", STACKS[name])
    leaves = [inputs, recurrent, (300 * heads.detach()).requires_grad_(), bias, bottom]
    if STACKS[name].pushed == "exp":
        leaves[2] = torch.cat([leaves[2][:-2], heads[-2:]]).detach().requires_grad_()
    cotangent = torch.randn(2, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    found, expected = (
        outcome(leaves, cotangent, cell="lstm", stack=STACKS[name], implementation=choice) for choice in IMPLEMENTATIONS
    )
    for result, wanted in zip(found, expected, strict=True):
        assert result.isfinite().all()
        assert (result - wanted).norm() <= 1e-8 * max(wanted.norm(), cotangent.norm())


@pytest.fixture
def network_of_exact_log_weights():
    """Leaves in float32 whose transitions have log-weights that float32 holds exactly, and the sharpness of each step.

    The first hidden unit is -1 or 1, as the inputs say. Where it is 1, log-weights are ``sharpness`` times as large.
    """

    def draw(stack, sharp, sharpness):
        generator = torch.Generator().manual_seed(3)
        batch, time, units = *sharp.shape, 4
        inputs = torch.randn(batch, time, units, generator=generator)
        recurrent = torch.randn(units, units + stack.reading_size, generator=generator) / 2
        heads = torch.zeros(stack.action_size + stack.vector, units)
        bias, bottom = torch.randn(len(heads), generator=generator), torch.rand(stack.vector, generator=generator)
        log_weights = torch.randn(stack.action_size, generator=generator).mul(8).round() / 8
        inputs[..., 0], recurrent[0] = torch.where(sharp, 40.0, -40.0), 0
        heads[: stack.action_size, 0] = log_weights * (sharpness - 1) / 2
        heads[stack.action_size :] = torch.randn(stack.vector, units, generator=generator)
        bias[: stack.action_size] = log_weights * (sharpness + 1) / 2
        return [leaf.requires_grad_() for leaf in (inputs, recurrent, heads, bias, bottom)]

    return draw


LANES = RecurrentStack("nondeterministic", 2, states=2, symbols=2)


@pytest.mark.parametrize("sharpness", [3, 31, 401])
def test_in_floats_or_in_doubles_as_the_log_weights_require(network_of_exact_log_weights, sharpness):
    sharp = torch.zeros(3, 30, dtype=torch.bool)
    sharp[1], sharp[2, 12:] = True, True
    leaves, lengths = network_of_exact_log_weights(LANES, sharp, sharpness), torch.tensor([20, 29, 30])
    cotangent = torch.randn(3, 30, 4, generator=torch.Generator().manual_seed(9))
    compared(leaves, cotangent, lengths, 1e-5, cell="tanh", stack=LANES)
    inputs, *maps = leaves
    found = outcome(leaves, cotangent, lengths, cell="tanh", stack=LANES)[:2]
    for i, length in enumerate(lengths.tolist()):
        one = inputs.detach()[i : i + 1, :length].requires_grad_()
        alone = outcome([one, *maps], cotangent[i : i + 1, :length], cell="tanh", stack=LANES)[:2]
        assert all(torch.equal(x[i : i + 1, :length], y) for x, y in zip(found, alone, strict=True))


def network_of_given_log_weights(states, steps, dtype):
    """A stack of two symbols, and an Elman network that takes ``steps`` and adds up the readings in its last unit.

    A step has the log-weights of (push or repl, q, x, r, y) and (pop, q, x, r); those of other transitions are -1e4.
    """
    stack = RecurrentStack("nondeterministic", 1, states=states, symbols=2, pushed="none")
    units, of_stay = len(steps) + 2, 2 * states
    heads = torch.zeros(stack.action_size + 1, units, dtype=dtype)
    heads[:-1, : len(steps)] = -1e4
    for t, step in enumerate(steps):
        for (kind, q, x, *after), log_weight in step.items():
            number = 2 * of_stay + after[0] if kind == "pop" else (kind == "repl") * of_stay + after[0] * 2 + after[1]
            heads[(q * 2 + x) * (2 * of_stay + states) + number, t] = log_weight
    inputs = 40 * torch.eye(units, dtype=dtype)[None, :-1]  # one-hot hidden vectors
    recurrent = torch.zeros(units, units + stack.reading_size, dtype=dtype)
    recurrent[-1, units:] = 1 + torch.arange(stack.reading_size)
    leaves = [inputs, recurrent, heads, torch.zeros(len(heads), dtype=dtype), torch.full((1,), 0.5, dtype=dtype)]
    return stack, [leaf.requires_grad_() for leaf in leaves]


@pytest.mark.parametrize(("dtype", "small"), [(torch.float32, 23.0), (torch.float64, 330.0)])
def test_a_pop_far_heavier_than_the_configuration_it_leads_to(dtype, small):
    steps = [
        {("push", 0, 0, 0, 0): -small, ("repl", 0, 0, 0, 0): 0.0},
        {("pop", 0, 0, 0): small, ("repl", 0, 0, 0, 1): -min(3 * small, 2 * small + 25)},
        {("repl", 0, 0, 0, 0): 0.0, ("repl", 0, 1, 0, 1): 0.0},
    ]
    stack, leaves = network_of_given_log_weights(1, steps, dtype)
    compared(leaves, torch.ones(1, 4, 5, dtype=dtype), None, TOLERANCE[dtype], cell="tanh", stack=stack)


@pytest.mark.parametrize(
    ("dtype", "share", "pop", "later"), [(torch.float32, 1e-34, 100, 43), (torch.float64, 1e-290, 800, 590)]
)
def test_what_is_lost_in_the_step_that_pops_it(dtype, share, pop, later):
    """After the pop of an item of a weight of about ``share``, the heaviest runs are those with it."""
    first = {(kind, 0, 0, r, y): math.log(2 * share) for kind in ("push", "repl") for r in (0, 1) for y in (0, 1)}
    first |= {
        ("push", 0, 0, 0, 0): math.log(3 * share),
        ("push", 0, 0, 0, 1): math.log(1e-3),
        ("repl", 0, 0, 0, 0): 0.0,
    }
    second = {("pop", 0, 0, 0): pop, ("pop", 0, 1, 1): 0.0, ("repl", 0, 0, 0, 0): 0.0}
    third = {("repl", q, x, q, x): later if q else 0.0 for q in (0, 1) for x in (0, 1)}
    stack, leaves = network_of_given_log_weights(2, [first, second, third], dtype)
    compared(leaves, torch.ones(1, 4, 5, dtype=dtype), None, TOLERANCE[dtype], cell="tanh", stack=stack)


def test_lanes_do_not_depend_on_their_number(random_network):
    """Nine sequences are in vectors of eight lanes, three in vectors of four."""
    stack = STACKS["nondeterministic, three states"]
    inputs, *maps = random_network(9, 20, 5, "lstm", stack, torch.float32)
    cotangent = torch.randn(9, 20, 5, generator=torch.Generator().manual_seed(9))
    together = outcome([inputs, *maps], cotangent, cell="lstm", stack=stack)[:2]
    some = outcome([inputs[4:7].detach().requires_grad_(), *maps], cotangent[4:7], cell="lstm", stack=stack)[:2]
    assert all(torch.equal(nine[4:7], three) for nine, three in zip(together, some, strict=True))


def test_a_cotangent_too_large_for_floats(network_of_exact_log_weights):
    sharp = torch.ones(2, 24, dtype=torch.bool)
    leaves, scale = network_of_exact_log_weights(LANES, sharp, 3), 2.0**110
    cotangent = torch.randn(2, 24, 4, generator=torch.Generator().manual_seed(9))
    found = outcome(leaves, cotangent * scale, cell="tanh", stack=LANES)[1:]
    expected = outcome(leaves, cotangent, cell="tanh", stack=LANES)[1:]
    assert_close([x / scale for x in found], expected, 1e-4)


def test_forbidden_transitions_in_floats(random_network):
    leaves = random_network(3, 12, 4, "lstm", LANES, torch.float32)
    with torch.no_grad():
        leaves[3][[0, 3, 9, 14, 30]] = -torch.inf
    compared(leaves, torch.ones(3, 12, 4), None, 1e-5, cell="lstm", stack=LANES)
    with torch.no_grad():
        leaves[3][: LANES.action_size] = -torch.inf  # readings of zeros
    compared(leaves, torch.ones(3, 12, 4), None, 1e-5, cell="lstm", stack=LANES)


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("cell", ["lstm", "tanh", "relu"])
@pytest.mark.parametrize("name", STACKS)
def test_gradcheck(random_network, implementation, cell, name):
    leaves, lengths = random_network(2, 4, 3, cell, STACKS[name]), torch.tensor([4, 2])

    def hiddens(*leaves):
        return stack_rnn(*leaves, cell=cell, stack=STACKS[name], lengths=lengths, implementation=implementation)

    assert gradcheck(hiddens, leaves, fast_mode=True)


def test_second_gradient_is_refused_or_right(random_network):
    stack = STACKS["superposition"]
    leaves = random_network(1, 3, 2, "lstm", stack)
    choice = {"cell": "lstm", "stack": stack}
    assert gradgradcheck(lambda *x: stack_rnn(*x, implementation="reference", **choice), leaves, fast_mode=True)
    hiddens = stack_rnn(*leaves, implementation="cpu", **choice)
    (first,) = torch.autograd.grad(hiddens.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("implementation", "dtype"), [("reference", torch.float64), ("cpu", torch.float64), ("cpu", torch.float32)]
)
@pytest.mark.parametrize("name", STACKS)
def test_past_the_length_nothing_enters_and_nothing_leaves(random_network, implementation, dtype, name):
    stack, lengths = STACKS[name], torch.tensor([6, 2, 0])
    inputs, *maps = random_network(3, 6, 4, "lstm", stack, dtype)
    past = torch.arange(6) >= lengths[:, None]
    cotangent = torch.randn(3, 6, 4, dtype=dtype)
    choice = {"cell": "lstm", "stack": stack, "implementation": implementation}
    clean = outcome([inputs, *maps], cotangent, lengths, **choice)
    poisoned = inputs.detach().masked_fill(past[..., None], float("nan")).requires_grad_()
    found = outcome([poisoned, *maps], cotangent.masked_fill(past[..., None], float("nan")), lengths, **choice)
    assert all(torch.equal(result, expected) for result, expected in zip(found, clean, strict=True))
    assert all((result[past] == 0).all() for result in found[:2])
    alone = stack_rnn(inputs[1:2, :2], *maps, **choice)
    torch.testing.assert_close(found[0][1:2, :2], alone, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("implementation", ["reference", "cpu"])
@pytest.mark.parametrize("cell", ["relu", "lstm"])
def test_padding_that_overflows_has_no_effect_on_gradients(random_network, implementation, cell):
    stack = RecurrentStack("superposition", 2, pushed="exp")
    inputs, recurrent, heads, *others = random_network(2, 6, 3, cell, stack, torch.float64)
    network = (
        inputs,
        (recurrent.abs() * 30).detach().requires_grad_(),
        (heads.abs() * 30).detach().requires_grad_(),
        *others,
    )
    hiddens = stack_rnn(*network, cell=cell, stack=stack, lengths=torch.tensor([2, 1]), implementation=implementation)
    gradients = torch.autograd.grad(hiddens.sum(), network[:4])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", STACKS)
def test_nan_reaches_only_its_own_sequence_and_later_steps(random_network, dtype, name):
    inputs, *maps = random_network(2, 5, 3, "lstm", STACKS[name], dtype)
    with torch.no_grad():
        inputs[0, 3] = float("nan")
    hiddens = stack_rnn(inputs, *maps, cell="lstm", stack=STACKS[name], implementation="cpu")
    expected = torch.zeros(2, 5, 3, dtype=torch.bool)
    expected[0, 3:] = True
    assert torch.equal(hiddens.isnan(), expected)


@pytest.mark.parametrize("gate", range(4))
def test_nan_in_a_gate_of_the_first_step(random_network, gate):
    inputs, *maps = random_network(1, 2, 3, "lstm", STACKS["superposition"], torch.float64)
    with torch.no_grad():
        inputs[0, 0, 3 * gate] = float("nan")
    found, expected = (
        stack_rnn(inputs, *maps, cell="lstm", stack=STACKS["superposition"], implementation=each).isnan()
        for each in ("cpu", "reference")
    )
    assert expected.any()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", STACKS)
def test_threads_do_not_change_a_sum(random_network, assert_same_by_threads, name):
    """Nor does it matter how many sequences a thread processes together."""
    stack, lengths = STACKS[name], torch.tensor([30, 0, 1, 29, 30, 7, 30])
    leaves = random_network(7, 30, 20, "lstm", stack, torch.float32)
    how = {"cell": "lstm", "stack": stack, "lengths": lengths}
    assert_same_by_threads(lambda: outcome(leaves, torch.ones(7, 30, 20), **how)[:2])


@pytest.mark.parametrize("name", STACKS)
def test_operator_is_well_registered(random_network, name):
    stack = STACKS[name]
    leaves = random_network(2, 4, 3, "lstm", stack)
    for lengths in (None, torch.tensor([4, 2])):
        arguments = (*leaves, lengths, encoded("lstm", stack))
        # What is kept has parts that are never written.
        checks = ["test_schema", "test_faketensor", "test_autograd_registration"]
        torch.library.opcheck(torch.ops.structattn.stack_rnn.default, arguments, test_utils=checks)


@pytest.mark.quick("cpu-superposition", "cpu-stratified", "cpu-nondeterministic")
@pytest.mark.parametrize(
    ("implementation", "name"),
    [("cpu", "superposition"), ("cpu", "stratified"), ("cpu", "nondeterministic"), ("reference", "stratified")],
)
def test_survives_compilation(random_network, implementation, name):
    leaves, lengths = random_network(2, 3, 3, "lstm", STACKS[name]), torch.tensor([3, 2])

    def program(*leaves):
        choice = {"cell": "lstm", "stack": STACKS[name], "implementation": implementation}
        return stack_rnn(*leaves, lengths=lengths, **choice).sin().sum()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(*leaves), leaves, materialize_grads=True)
    found = torch.autograd.grad(compiled(*leaves), leaves, materialize_grads=True)
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: (2, 3)}, "inputs has shape"),
        ({0: (2, 3, 9)}, "inputs has 9 gates; expected 4 for each of 2 hidden units"),
        ({1: (8, 4)}, "recurrent has shape"),
        ({2: (5, 2)}, "heads has shape"),
        ({3: (5,)}, "bias has shape"),
        ({4: (2,)}, "bottom has shape"),
    ],
)
def test_shapes_that_do_not_fit(change, message):
    shapes = {0: (2, 3, 8), 1: (8, 5), 2: (6, 2), 3: (6,), 4: (3,)} | change
    with pytest.raises(ValueError, match=message):
        stack_rnn(*(torch.zeros(shape) for shape in shapes.values()), cell="lstm", stack=STACKS["superposition"])


def test_refusals(random_network):
    leaves = random_network(1, 2, 3, "lstm", STACKS["superposition"])
    with pytest.raises(ValueError, match="cell='gru'"):
        stack_rnn(*leaves, cell="gru", stack=STACKS["superposition"])
    with pytest.raises(ValueError, match="name='queue'"):
        RecurrentStack("queue", 3)
    with pytest.raises(ValueError, match="pushed='cube'"):
        RecurrentStack("superposition", 3, pushed="cube")
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        RecurrentStack("superposition", 0)
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        RecurrentStack("superposition", 3, depth=0)
