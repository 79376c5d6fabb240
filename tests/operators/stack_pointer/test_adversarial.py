"""Hostile numbers: no finite input gives NaN, and all ways agree with the definition."""

from functools import partial

import pytest
import torch
from adversarial import assert_agree, batches_of, with_gradients

from structattn.operators import stack_pointer, stack_pointer_weights
from structattn.operators.stack_pointer.cpu import readings_by_map, readings_by_stack

BATCH = 20


@pytest.mark.parametrize("case", batches_of(BATCH))
def test_hostile_numbers(case, hostile, hostile_actions):
    generator = torch.Generator().manual_seed(case)
    time, vector = (int(torch.randint(1, end, (), generator=generator)) for end in (40, 20))
    given = [hostile_actions(generator, (BATCH, time, 3)), hostile(generator, (BATCH, time + 1, vector))]
    cotangent = hostile(generator, (BATCH, time, vector))
    lengths = torch.randint(time + 1, (BATCH,), generator=generator)

    definition = with_gradients(partial(stack_pointer, lengths=lengths, implementation="reference"), given, cotangent)
    for way in (readings_by_map, readings_by_stack):
        assert_agree(with_gradients(partial(way, lengths=lengths), given, cotangent), definition, cotangent)

    ones = torch.ones(BATCH, time, time + 1, dtype=torch.float64)
    wanted, found = (
        with_gradients(partial(stack_pointer_weights, lengths=lengths, implementation=form), given[:1], ones)
        for form in ("reference", "cpu")
    )
    assert_agree(found, wanted, ones)
