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

IN_BLOCKS = 2  # where the header of a sequence's tables says whether they are those of blocks


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


def in_blocks(inputs, window=None):
    """Whether each sequence was computed in blocks."""
    arguments = checked_arguments(*inputs.all, None, window)
    return nondeterministic_stack_cpu(*arguments, False)[2][:, IN_BLOCKS].bool().tolist()


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
    assert in_blocks(inputs, window) == [True] * 2
    assert_same(with_gradients(whole, inputs, window=window), with_gradients(by_steps, inputs, window=window))


@pytest.mark.covering(2)
@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize("symbols", [1, 2, 3])
@pytest.mark.parametrize("window", [None, 7])
def test_blocks_equal_the_definition(random_inputs, states, symbols, window):
    inputs = random_inputs(2, 36, states, symbols, scale=2.0)
    reference = {"window": window, "implementation": "reference"}
    wanted = with_gradients(lambda x, **options: nondeterministic_stack(*x.all, **options), inputs, **reference)
    assert_same(with_gradients(whole, inputs, window=window), wanted)
    found = nondeterministic_stack_log_weight(*inputs.logits, window=window, implementation="cpu")
    torch.testing.assert_close(
        found, nondeterministic_stack_log_weight(*inputs.logits, **reference), rtol=0, atol=1e-10
    )
    posteriors = nondeterministic_stack_posteriors(*inputs.logits, window=window, implementation="cpu")
    assert_same(posteriors, nondeterministic_stack_posteriors(*inputs.logits, **reference))


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


@pytest.mark.parametrize(("scale", "expected"), [(20.0, True), (100.0, False)])
def test_widely_spread_logits(random_inputs, scale, expected):
    """At 100 the provisional weights of a block leave the range of doubles."""
    inputs = random_inputs(1, 36, 2, 2, scale=scale)
    assert in_blocks(inputs) == [expected]
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
