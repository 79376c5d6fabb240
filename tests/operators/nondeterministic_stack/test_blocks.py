"""The kernel for blocks of steps: against single steps and the definition, around block edges and limits of range."""

import dataclasses

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_initial_state,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_step,
    nondeterministic_stack_weights,
)
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.cpu import nondeterministic_stack_cpu

FORM = 1  # where the header of a sequence's tables says what they hold
RECOMPUTED, BLOCKS, BLOCKS_OF_FLOATS = range(3)


def whole(inputs, **options):
    return nondeterministic_stack(*inputs.all, implementation="cpu", **options)


def by_steps(inputs, window=None):
    batch, time, states, symbols = inputs.push.shape[:4]
    options = {"window": window, "implementation": "cpu"}
    state = nondeterministic_stack_initial_state(inputs.bottom, batch, states, symbols, **options)
    readings = []
    for t in range(time):
        reading, state = nondeterministic_stack_step(*(x[:, t] for x in inputs.all[:4]), state)
        readings.append(reading)
    return torch.stack(readings, 1)


def with_gradients(function, inputs, **options):
    """Results and the gradients of all inputs, for random cotangents."""
    leaves = type(inputs)(*(x.detach().clone().requires_grad_() for x in inputs.all))
    results = function(leaves, **options)
    cotangent = torch.randn(results.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return results.detach(), *torch.autograd.grad(results, leaves.all, cotangent, materialize_grads=True)


def assert_same(found, wanted, tolerance=1e-11):
    for x, r in zip(found, wanted, strict=True):
        assert float((x - r).norm()) <= tolerance * max(float(r.norm()), 1.0)


def forms(inputs, window=None):
    """What the tables of each sequence hold."""
    arguments = checked_arguments(*inputs.all, None, window)
    return nondeterministic_stack_cpu(*arguments, False)[2][:, FORM].int().tolist()


def with_logits(inputs, change):
    return dataclasses.replace(inputs, **{name: change(getattr(inputs, name)) for name in ("push", "replace", "pop")})


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "time", [1, 2, 3, 8, 15, 16, 17, 18, 31, 32, 33, 34, 47, 48, 49, 63, 64, 65, 66, 100, 128, 200]
)
@pytest.mark.parametrize("window", [None, 1, 9, 16, 17, 40])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_blocks_equal_single_steps(random_inputs, time, window, scale):
    inputs = random_inputs(2, time, 2, 3, scale=scale, seed=time)
    assert forms(inputs, window) == [BLOCKS] * 2
    assert_same(with_gradients(whole, inputs, window=window), with_gradients(by_steps, inputs, window=window))


@pytest.mark.covering(1)
@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize("symbols", [1, 2, 3])
@pytest.mark.parametrize("window", [None, 7])
def test_blocks_equal_the_definition(random_inputs, states, symbols, window):
    time = 36 if states * symbols < 9 else 20  # the definition takes long
    inputs = random_inputs(2, time, states, symbols, scale=2.0)
    reference = {"window": window, "implementation": "reference"}
    wanted = with_gradients(lambda x, **options: nondeterministic_stack(*x.all, **options), inputs, **reference)
    assert_same(with_gradients(whole, inputs, window=window), wanted)
    found = nondeterministic_stack_log_weight(*inputs.logits, window=window, implementation="cpu")
    torch.testing.assert_close(
        found, nondeterministic_stack_log_weight(*inputs.logits, **reference), rtol=0, atol=1e-10
    )
    posteriors = nondeterministic_stack_posteriors(*inputs.logits, window=window, implementation="cpu")
    assert_same(posteriors, nondeterministic_stack_posteriors(*inputs.logits, **reference))


@pytest.mark.quick("20")
@pytest.mark.parametrize("window", [None, 20])
def test_weights_over_positions_and_their_gradients_equal_the_definition(random_inputs, window):
    def weights(inputs, **options):
        return nondeterministic_stack_weights(*inputs.logits, **options) + 0 * inputs.values.sum() * inputs.bottom.sum()

    inputs = random_inputs(1, 37, 2, 2)
    wanted = with_gradients(weights, inputs, window=window, implementation="reference")
    assert_same(with_gradients(weights, inputs, window=window, implementation="cpu"), wanted)


@pytest.mark.parametrize("time", [70, 130])
def test_weights_over_positions_give_the_readings_of_long_sequences(random_inputs, time):
    inputs = random_inputs(2, time, 2, 3, scale=2.0)
    weights = nondeterministic_stack_weights(*inputs.logits, implementation="cpu")
    vectors = torch.cat([inputs.bottom.expand(2, 1, -1), inputs.values], 1)
    product = torch.einsum("btqsj,bjm->btqsm", weights, vectors)
    torch.testing.assert_close(whole(inputs), product, rtol=0, atol=1e-13)


def test_other_sequences_later_steps_and_threads_change_no_bit(random_inputs):
    inputs, other = random_inputs(5, 70, 2, 3), random_inputs(5, 70, 2, 3, seed=1)
    lengths = torch.tensor([5, 31, 70, 32, 64])
    together = with_gradients(whole, inputs, lengths=lengths)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = with_gradients(whole, inputs, lengths=lengths)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(x, r) for x, r in zip(again, together, strict=True))
    for b, length in enumerate(lengths.tolist()):
        alone = nondeterministic_stack(*(x[b : b + 1, :length] for x in inputs.all[:4]), inputs.bottom)
        assert torch.equal(alone[0], together[0][b, :length])
        assert not together[0][b, length:].any()
    mixed = [torch.cat([a[:, :39], b[:, 39:]], 1) for a, b in zip(inputs.all[:4], other.all[:4], strict=True)]
    assert torch.equal(nondeterministic_stack(*mixed, inputs.bottom)[:, :39], whole(inputs)[:, :39])


@pytest.mark.parametrize(("scale", "expected"), [(100.0, BLOCKS), (400.0, RECOMPUTED)])
def test_widely_spread_logits(random_inputs, scale, expected):
    """At 400 the provisional weights of a block leave the range of doubles."""
    inputs = random_inputs(1, 36, 2, 2, scale=scale)
    assert forms(inputs) == [expected]
    wanted = with_gradients(lambda x: nondeterministic_stack(*x.all, implementation="reference"), inputs)
    assert_same(with_gradients(whole, inputs), wanted, 1e-9)


@pytest.mark.parametrize(("start", "size"), [(20, 400.0), (33, 250.0), (40, 3000.0)])
def test_pops_that_outweigh_everything_else_for_a_while(random_inputs, start, size):
    """Provisional weights leave pops out; a few steps of forced pops make them wrong by a large factor."""
    inputs = random_inputs(1, 48, 2, 2)
    inputs.pop[:, start : start + 4] += size
    wanted = with_gradients(lambda x: nondeterministic_stack(*x.all, implementation="reference"), inputs)
    assert_same(with_gradients(whole, inputs), wanted, 1e-9)
    found = nondeterministic_stack_log_weight(*inputs.logits, implementation="cpu")
    wanted = nondeterministic_stack_log_weight(*inputs.logits, implementation="reference")
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=0)


def test_what_has_underflowed_within_a_block_and_comes_back_is_found_again(random_inputs):
    inputs = random_inputs(1, 40, 1, 1, scale=0.0)
    inputs.push[0, 34], inputs.push[0, 35:], inputs.pop[0, 37] = -800.0, -torch.inf, 1600.0
    wanted = with_gradients(lambda x: nondeterministic_stack(*x.all, implementation="reference"), inputs)
    assert_same(with_gradients(whole, inputs), wanted, 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_forbidden_transitions_and_unreachable_configurations(random_inputs, seed):
    inputs = random_inputs(1, 40, 2, 3, seed=seed)
    forbidden = torch.Generator().manual_seed(seed)

    def masked(x):
        return x.masked_fill(torch.rand(x.shape, generator=forbidden) < 0.3, -torch.inf)

    inputs = with_logits(inputs, masked)
    for x in (inputs.push, inputs.replace):
        x[..., 1, 2] = -torch.inf  # nothing leads to state 1 with symbol 2 on top, except pops
    inputs.replace[:, :, 0, 0, 0, 0] = 0.0  # one possible run
    reference = nondeterministic_stack(*inputs.all, implementation="reference")
    torch.testing.assert_close(whole(inputs), reference, rtol=0, atol=1e-12)
    found, wanted = with_gradients(whole, inputs), with_gradients(by_steps, inputs)
    assert_same(found, wanted)


def test_steps_without_possible_transitions_and_without_numbers(random_inputs):
    inputs = random_inputs(3, 70, 2, 3)
    for x in inputs.logits:
        x[0, 50] = -torch.inf
    inputs.push[1, 60, 0, 0, 0, 0] = torch.nan
    readings = whole(inputs)
    clean = whole(random_inputs(3, 70, 2, 3))
    torch.testing.assert_close(readings[0, :50], clean[0, :50], rtol=0, atol=1e-13)
    torch.testing.assert_close(readings[1, :60], clean[1, :60], rtol=0, atol=1e-13)
    assert not readings[0, 50:].any()
    assert readings[1, 60:].isnan().all()
    assert torch.equal(readings[2], clean[2])


def float_errors(inputs, size=1.0):
    """Errors of readings and gradients of float32 inputs, against the float64 kernel; of gradients by the cotangent."""
    results, whole_size = [], 0.0
    for dtype in (torch.float32, torch.float64):
        leaves = inputs.to(torch.float32).to(dtype)
        leaves = type(inputs)(*(x.requires_grad_() for x in leaves.all))
        readings = whole(leaves)
        cotangent = size * torch.randn(readings.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        whole_size = float(cotangent.norm())
        results.append((readings.detach(), *torch.autograd.grad(readings, leaves.all, cotangent.to(dtype))))
    (readings, *gradients), (wanted, *wanted_gradients) = results
    yield float((readings - wanted).norm() / wanted.norm())
    for x, r in zip(gradients, wanted_gradients, strict=True):
        yield float((x - r).norm()) / max(float(r.norm()), whole_size)


@pytest.mark.parametrize(("states", "symbols", "time"), [(1, 1, 40), (2, 3, 129), (3, 3, 50)])
@pytest.mark.parametrize(("scale", "expected"), [(0.1, BLOCKS_OF_FLOATS), (3.0, BLOCKS_OF_FLOATS), (30.0, BLOCKS)])
def test_tables_of_floats(random_inputs, states, symbols, time, scale, expected):
    inputs = random_inputs(2, time, states, symbols, scale=scale)
    if states * symbols > 1:  # of one configuration nothing becomes small
        assert forms(inputs.to(torch.float32)) == [expected] * 2
    assert max(float_errors(inputs)) < 2e-6


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_cotangents_of_any_size_leave_the_range_of_floats_to_the_tables(random_inputs, size):
    inputs = random_inputs(2, 60, 2, 3, scale=4.0)
    assert forms(inputs.to(torch.float32)) == [BLOCKS_OF_FLOATS] * 2
    assert max(float_errors(inputs, size)) < 2e-6


@pytest.mark.parametrize("push_at", [2, 34])
@pytest.mark.parametrize(("smallness", "expected"), [(-10.0, BLOCKS_OF_FLOATS), (-85.0, BLOCKS), (-300.0, RECOMPUTED)])
def test_what_floats_lose_and_comes_back_is_found_again(random_inputs, push_at, smallness, expected):
    """A push of a tiny weight that a later pop makes the only run that matters."""
    inputs = random_inputs(1, 40, 1, 1, scale=0.1)
    inputs.push[0] = -torch.inf
    inputs.push[0, push_at], inputs.pop[0] = smallness, -torch.inf
    inputs.pop[0, 37] = -2 * smallness
    assert forms(inputs.to(torch.float32)) == [expected]
    assert max(float_errors(inputs)) < 2e-6


def test_pops_that_outweigh_everything_else_keep_their_floats(random_inputs):
    """Estimates of provisional weights cannot know that there is so much to pop; they are corrected."""
    inputs = random_inputs(1, 64, 2, 3)
    inputs.push[:, :32] += 8.0
    inputs.pop[:, 32:60] += 12.0
    assert forms(inputs.to(torch.float32)) == [BLOCKS_OF_FLOATS]
    assert max(float_errors(inputs)) < 2e-6
