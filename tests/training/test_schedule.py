import numpy as np
import pytest
import torch

from structattn.settings.training import ConstantSchedule, PlateauSchedule, WarmupSchedule
from structattn.training.schedule import after_validation, rate_of_update
from structattn.training.state import ScheduleState


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("factor", "patience"), [(0.9, 5), (0.5, 2), (0.1, 0), (0.999999, 1)])
def test_plateau_is_that_of_torch(seed, factor, patience):
    generator = np.random.default_rng(seed)
    perplexities = 2 + generator.random(80) * generator.choice([1e-6, 1e-4, 1e-2, 1.0], 80)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.003)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=factor, patience=patience)
    state = ScheduleState(0.003)
    for perplexity in perplexities:
        theirs.step(perplexity)
        state = after_validation(PlateauSchedule(factor=factor, patience=patience), state, float(perplexity))
        assert state.learning_rate == optimizer.param_groups[0]["lr"]
        assert (state.best, state.bad) == (theirs.best, theirs.num_bad_epochs)


def test_the_rate_falls_after_the_sixth_bad_validation():
    state, rates = ScheduleState(1.0), []
    for perplexity in [2.0] * 8:
        state = after_validation(PlateauSchedule(factor=0.9, patience=5), state, perplexity)
        rates.append(state.learning_rate)
    assert rates == [1.0] * 6 + [0.9] * 2


def test_changes_below_1e8_are_not_made():
    state = ScheduleState(1e-8, best=1.0, bad=0)
    assert after_validation(PlateauSchedule(factor=0.9, patience=0), state, 2.0).learning_rate == 1e-8


@pytest.mark.parametrize("settings", [ConstantSchedule(), WarmupSchedule(steps=10)])
def test_the_others_pay_no_heed_to_validation(settings):
    state = ScheduleState(0.1)
    assert after_validation(settings, state, 5.0) is state


def test_warmup_rises_linearly_then_falls_with_the_square_root():
    rates = [rate_of_update(WarmupSchedule(steps=4), ScheduleState(0.1), update) for update in (1, 2, 4, 16, 64)]
    assert rates == pytest.approx([0.025, 0.05, 0.1, 0.05, 0.025], rel=1e-15)


@pytest.mark.parametrize("settings", [ConstantSchedule(), PlateauSchedule()])
def test_constant_and_plateau_take_the_rate_of_the_state(settings):
    assert rate_of_update(settings, ScheduleState(0.1), 7) == 0.1
