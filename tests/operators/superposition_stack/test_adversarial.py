"""Hostile numbers: no finite input gives NaN, and the kernel agrees with the definition."""

from functools import partial

import pytest
import torch
from adversarial import assert_agree, batches_of, with_gradients

from structattn.operators import superposition_stack

BATCH = 20


@pytest.mark.parametrize("case", batches_of(BATCH))
def test_hostile_numbers(case, hostile, hostile_actions):
    generator = torch.Generator().manual_seed(case)
    time, vector = (int(torch.randint(1, end, (), generator=generator)) for end in (40, 20))
    given = [hostile_actions(generator, (BATCH, time, 3)), hostile(generator, (BATCH, time, vector))]
    cotangent = hostile(generator, (BATCH, time, vector))
    lengths = torch.randint(time + 1, (BATCH,), generator=generator)
    wanted, found = (
        with_gradients(partial(superposition_stack, lengths=lengths, implementation=form), given, cotangent)
        for form in ("reference", "cpu")
    )
    assert_agree(found, wanted, cotangent)
