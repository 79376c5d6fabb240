"""Windows that drop next to nothing: the bound of what they drop against exact shares of runs."""

from functools import partial

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack_dropped,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_weights,
    nondeterministic_stack_window,
)


def dropped_exactly(logits, window, **options):
    """The largest share of runs up to a step that is forbidden, and half the largest error of a step's weights."""
    whole = nondeterministic_stack_log_weight(*logits, **options)
    allowed = nondeterministic_stack_log_weight(*logits, window=window, **options)
    weights = nondeterministic_stack_weights(*logits, **options)
    difference = nondeterministic_stack_weights(*logits, window=window, **options) - weights
    return -torch.expm1(allowed - whole).amin(1), difference.abs().sum((2, 3, 4)).amax(1) / 2


@pytest.mark.parametrize(("states", "symbols"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("window", [1, 2, 5, 16, 39, 40])
@pytest.mark.parametrize("offset", [-3.0, 0.0, 2.0])
def test_the_bound_holds(random_inputs, states, symbols, window, offset):
    logits = random_inputs(2, 40, states, symbols).logits
    logits[2].add_(offset)
    options = {"lengths": torch.tensor([40, 23])}
    bound = nondeterministic_stack_dropped(*logits, window, **options)
    share, error = dropped_exactly(logits, window, **options)
    assert (bound >= share - 1e-12).all()
    assert (bound >= error - 1e-12).all()
    assert (bound > 0).tolist() == [window < 39, window < 22]  # the first pop that a window can forbid is in step D + 2


def test_the_bound_is_useful(random_inputs):
    logits = random_inputs(2, 60, 2, 3).logits
    share, _ = dropped_exactly(logits, 32)
    bound = nondeterministic_stack_dropped(*logits, 32)
    assert (bound < 40 * share).all()


def test_implementations_agree(random_inputs):
    logits = random_inputs(2, 20, 2, 2).logits
    bounds = [nondeterministic_stack_dropped(*logits, 7, implementation=name) for name in ("cpu", "reference")]
    torch.testing.assert_close(*bounds, rtol=1e-9, atol=0)


def test_the_shortest_window_within_the_tolerance_is_found(random_inputs):
    logits = tuple(x.float() for x in random_inputs(2, 100, 2, 2).logits)
    logits[2].sub_(3.0)
    window, dropped = nondeterministic_stack_window(*logits, tolerance=1e-4)
    assert window in (32, 64)
    assert (dropped <= 1e-4).all()
    assert (nondeterministic_stack_dropped(*logits, window // 2) > 1e-4).any()
    wanted = nondeterministic_stack_weights(*logits)
    found = nondeterministic_stack_weights(*logits, window=window)
    assert float((found - wanted).abs().sum((2, 3, 4)).max()) < 2e-4


def test_there_may_be_no_good_window(random_inputs):
    logits = random_inputs(2, 40, 2, 2).logits
    logits[2].add_(4.0)
    assert nondeterministic_stack_window(*logits).window is None
    for time in (0, 1, 16):
        window, dropped = nondeterministic_stack_window(*(x[:, :time] for x in logits))
        assert window is None
        assert dropped.tolist() == [0.0, 0.0]


def test_nothing_is_claimed_where_the_window_allows_nothing(random_inputs):
    logits = random_inputs(1, 30, 1, 1).logits
    for x in logits[:2]:
        x[:, 20:] = -torch.inf  # pops alone, of items that are too old
    assert nondeterministic_stack_dropped(*logits, 3).tolist() == [torch.inf]


@pytest.mark.parametrize("time", [0, 5, 40])
def test_what_does_not_fit_is_refused(random_inputs, time):
    push, replace, pop = (x[:, :time] for x in random_inputs(2, 40, 2, 2).logits)
    for function in (nondeterministic_stack_window, partial(nondeterministic_stack_dropped, window=7)):
        with pytest.raises(ValueError, match="lengths range from 0 to 99; expected 0 to"):
            function(push, replace, pop, lengths=torch.tensor([0, 99]))
        with pytest.raises(ValueError, match="lengths has shape"):
            function(push, replace, pop, lengths=torch.tensor([0]))
        with pytest.raises(ValueError, match="pop has shape"):
            function(push, replace, pop[..., :1])
        with pytest.raises(ValueError, match=r"pop is torch\.float32"):
            function(push, replace, pop.float())
