"""StackTrans over depth: the sequence of updates written out."""

import math

import pytest
import torch

from structattn.loading.description import describe_model
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError

TOKENS = torch.tensor([[1, 4, 5, 6, 4], [1, 5, 7, 8, 9]])


def settings_of(**model):
    tree = {"layers": 3, "d_model": 8, "d_ff": 8, "num_heads": 2, "depth_stack": {"stack_embedding_size": 8}} | model
    return resolve_settings({"task": "language_modeling", "data": "unused", "model": tree}).model


def built(**model):
    torch.manual_seed(1)
    made = build_model(settings_of(**model), 11).double().eval()
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return made


@torch.no_grad()
def test_each_position_has_a_stack_that_layers_update():
    model = built(depth_stack={"stack_embedding_size": 8, "form": "paper", "depth": 2})
    x, cells = model.embedding(TOKENS, 0, None), [None] * TOKENS.numel()
    for block, stack in zip(model.layers.blocks, model.layers.stacks, strict=True):
        rows = block(x).flatten(0, 1)
        for i, row in enumerate(rows):
            state = stack.initial_state(1) if cells[i] is None else cells[i]
            y, cells[i] = stack.step(row[None], state)
            rows[i] = row + y[0]
        x = rows.view(x.shape)
    torch.testing.assert_close(model.layers(model.embedding(TOKENS, 0, None)), model.layers.final(x))


def test_is_described_and_combined_with_loops_refused():
    assert describe_model(settings_of()) == "d 8: 3 softmax; StackTrans-8 over depth"
    with pytest.raises(SettingsError, match="expected one of them"):
        settings_of(loops=2)


def test_stacks_over_depth_have_xaviers_bounds():
    """With ``weight_init: uniform``, as other stacks; the scale of that is 0.1."""
    torch.manual_seed(1)
    for stack in build_model(settings_of(), 11).layers.stacks:
        for matrix in stack.xavier_matrices():
            bound = math.sqrt(6 / sum(matrix.shape))
            assert bound / 2 < matrix.abs().max() <= bound
