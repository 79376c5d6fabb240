"""Posteriors of prefixes, against those of each prefix as a sequence of its own."""

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)
from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_prefix_posteriors


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("time", [0, 1, 2, 7])
def test_a_step_is_the_last_of_its_prefix(random_inputs, time, window):
    inputs = random_inputs(2, time, 2, 3)
    found = nondeterministic_stack_prefix_posteriors(*inputs.logits, window=window)
    assert found.actions.shape == (2, time, 3)
    for t in range(time):
        prefix = [x[:, : t + 1] for x in inputs.logits]
        posteriors = nondeterministic_stack_posteriors(*prefix, window=window, implementation="reference")
        expected = torch.stack([each[:, t].flatten(1).sum(-1) for each in posteriors], -1)
        torch.testing.assert_close(found.actions[:, t], expected, rtol=0, atol=1e-10)
        tops = nondeterministic_stack_weights(*prefix, window=window, implementation="reference")[:, t].sum(-1)
        torch.testing.assert_close(found.tops[:, t], tops, rtol=0, atol=1e-10)


def test_padding_and_steps_without_runs_are_zeros(random_inputs):
    inputs = random_inputs(2, 6, 2, 2)
    for x in inputs.logits:
        x[0, 3] = -torch.inf
    found = nondeterministic_stack_prefix_posteriors(*inputs.logits, lengths=torch.tensor([6, 4]))
    assert not found.actions[0, 3:].any()
    assert not found.actions[1, 4:].any()
    torch.testing.assert_close(found.actions[0, :3].sum(-1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found.actions[1, :4].sum(-1), torch.ones(4, dtype=torch.float64))


def test_later_steps_do_not_count(random_inputs):
    """Of the whole sequence they do."""
    inputs = random_inputs(1, 6, 2, 2)
    before = nondeterministic_stack_prefix_posteriors(*inputs.logits).actions
    whole = nondeterministic_stack_posteriors(*inputs.logits)[0]
    for x in inputs.logits:
        x[:, 4:] = torch.randn_like(x[:, 4:])
    torch.testing.assert_close(nondeterministic_stack_prefix_posteriors(*inputs.logits).actions[:, :4], before[:, :4])
    assert not torch.allclose(nondeterministic_stack_posteriors(*inputs.logits)[0][:, :4], whole[:, :4])


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e12])
def test_logits_beyond_the_range_of_doubles(random_inputs, scale):
    inputs = random_inputs(6, 5, 2, 2)
    logits = [scale * x for x in inputs.logits]
    found = nondeterministic_stack_prefix_posteriors(*logits)
    for t in range(5):
        posteriors = nondeterministic_stack_posteriors(*(x[:, : t + 1] for x in logits), implementation="reference")
        expected = torch.stack([each[:, t].flatten(1).sum(-1) for each in posteriors], -1)
        torch.testing.assert_close(found.actions[:, t], expected, rtol=0, atol=1e-6)


def test_a_share_that_doubles_cannot_hold_counts():
    """Symbol 1 has e^-740 of the weight, until its replacement outweighs all others."""
    push, pop = torch.zeros(1, 2, 1, 2, 1, 2, dtype=torch.double), torch.full((1, 2, 1, 2, 1), -torch.inf).double()
    push[0, 0, 0, 0, 0, 0], push[0, 0, 0, 0, 0, 1] = 0, -740
    replace = torch.full_like(push, -torch.inf)
    replace[0, 1, 0, 1] = 1500
    found = nondeterministic_stack_prefix_posteriors(push, replace, pop).actions[0, 1]
    torch.testing.assert_close(found, torch.tensor([0.0, 1, 0], dtype=torch.double), rtol=0, atol=1e-12)
