"""The gradients by plain operations on conditioned tables against autograd of the definition."""

import pytest
import torch
from adjoints_reference import cotangents, gradients
from tiles_reference import (
    corrections,
    provisional_tables,
    shares,
    vectors,
)

from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.gpu.tiles import Tiling
from structattn.operators.nondeterministic_stack.reference import reference_readings


@pytest.mark.parametrize(
    ("states", "symbols", "time", "rows", "window", "scale"),
    [(2, 3, 20, 16, None, 1.0), (3, 3, 11, 16, 5, 3.0), (1, 2, 20, 16, None, 10.0), (2, 2, 1, 32, None, 1.0)],
)
def test_gradients_equal_autograd(random_inputs, states, symbols, time, rows, window, scale):
    inputs = random_inputs(3, time, states, symbols, scale=scale)
    inputs.push[0, :, 0, 0] = -torch.inf
    lengths = torch.tensor([time, time // 2, 0])
    leaves = [x.requires_grad_() for x in inputs.all]
    outputs = reference_readings(checked_arguments(*leaves, lengths, window))
    given_cotangents = [torch.randn_like(x) for x in outputs]
    wanted = torch.autograd.grad(outputs, leaves, given_cotangents)

    given = checked_arguments(*(x.detach() for x in leaves), lengths, window)
    tiling = Tiling(3, time, states, symbols, min(window or time, time), rows)
    provisional = provisional_tables(given, tiling)
    tables = shares(given, tiling, provisional.log_p, corrections(given, provisional, tiling))
    *found, bottom = gradients(tables, tiling, vectors(given)[0], cotangents(*given_cotangents, lengths))
    for x, r in zip([*found, bottom.sum(0)], wanted, strict=True):
        torch.testing.assert_close(x, r, rtol=1e-10, atol=1e-11)
