"""What all positional encodings must do, and that the checks find what does not."""

import pytest
import torch

from structattn.attention.positions.contract import ADDED_CHECKS, SCORES_CHECKS
from structattn.settings.embeddings import POSITIONS
from structattn.support.errors import BrokenContractError

HEADS, SIZE = 3, 4
D_MODEL = HEADS * SIZE
BUILT_IN = {name: entry for name, entry in POSITIONS.items() if name not in POSITIONS.plugins}
ADDED = [name for name, entry in BUILT_IN.items() if entry.added]
SCORES = [name for name, entry in BUILT_IN.items() if entry.scores]


def settings_of(name):
    return BUILT_IN[name].settings(kind=name)


def test_all_are_checked():
    assert {*ADDED, *SCORES, "none"} == {*BUILT_IN}


@torch.no_grad()
@pytest.mark.parametrize("check", ADDED_CHECKS)
@pytest.mark.parametrize("name", ADDED)
def test_positions_that_are_added(name, check):
    ADDED_CHECKS[check](BUILT_IN[name].added(D_MODEL, settings_of(name)), D_MODEL)


@torch.no_grad()
@pytest.mark.parametrize("check", SCORES_CHECKS)
@pytest.mark.parametrize("name", SCORES)
def test_positions_that_act_on_scores(name, check):
    SCORES_CHECKS[check](BUILT_IN[name].scores(HEADS, SIZE, settings_of(name)), HEADS, SIZE)


@pytest.mark.parametrize(
    ("check", "positions", "message"),
    [
        ("shape", lambda first, count: torch.zeros(count, 1), "positions have shape .7, 1.; expected .7, 12."),
        ("shape", lambda first, count: torch.full((count, D_MODEL), torch.inf), "positions are not finite"),
        (
            "steps",
            lambda first, count: torch.arange(1.0, count + 1)[:, None].expand(count, D_MODEL),
            "a position from 3 on differs from that of the whole sequence: relative error",
        ),
    ],
)
def test_broken_positions_that_are_added_are_found(check, positions, message):
    with pytest.raises(BrokenContractError, match=message):
        ADDED_CHECKS[check](positions, D_MODEL)


@pytest.mark.parametrize(
    ("check", "positions", "message"),
    [
        ("shape", lambda q, k, first: (q[:, :, 1:], k, None), "queries have shape"),
        ("shape", lambda q, k, first: (q, k, torch.zeros(q.shape[2], k.shape[2])), "the bias has shape .7, 7.; exp"),
        ("steps", lambda q, k, first: (q, k, torch.arange(q.shape[2])[:, None] + k.new_zeros(1, 1, 1, k.shape[2])),
         "a score of a step differs from that of the whole sequence"),
        ("batches", lambda q, k, first: (q, k + k.mean(0), None),
         "a score in a batch differs from that of the sequence"),
    ],
)  # fmt: skip
def test_broken_positions_that_act_on_scores_are_found(check, positions, message):
    with pytest.raises(BrokenContractError, match=message):
        SCORES_CHECKS[check](positions, HEADS, SIZE)
