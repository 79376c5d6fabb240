import numpy as np
import pytest
import torch

from structattn.runs.checkpoint import ScheduleState
from structattn.settings.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    PlateauSchedule,
    TemperatureSchedule,
    WarmupSchedule,
    WsdSchedule,
)
from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError
from structattn.training.optimizers import schedule_after_validation, temperature_of_update, with_total_steps
from structattn.training.progress import rate_of_update


def test_the_temperature_falls_exponentially_and_stays_at_its_end():
    settings = TemperatureSchedule(start=2.0, end=0.02, after=20, updates=100)
    found = [temperature_of_update(settings, update) for update in (1, 20, 45, 70, 120, 1000)]
    assert found == pytest.approx([2.0, 2.0, 2 / 10**0.5, 0.2, 0.02, 0.02], rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("factor", "patience"), [(0.9, 5), (0.5, 2), (0.1, 0), (0.999999, 1)])
def test_plateau_schedule_equals_torch(seed, factor, patience):
    generator = np.random.default_rng(seed)
    perplexities = 2 + generator.random(80) * generator.choice([1e-6, 1e-4, 1e-2, 1.0], 80)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.003)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=factor, patience=patience)
    state = ScheduleState(0.003)
    for perplexity in perplexities:
        theirs.step(perplexity)
        state = schedule_after_validation(PlateauSchedule(factor=factor, patience=patience), state, float(perplexity))
        assert state.learning_rate == optimizer.param_groups[0]["lr"]
        assert (state.best, state.bad) == (theirs.best, theirs.num_bad_epochs)


def test_the_rate_falls_after_the_sixth_bad_validation():
    state, rates = ScheduleState(1.0), []
    for perplexity in [2.0] * 8:
        state = schedule_after_validation(PlateauSchedule(factor=0.9, patience=5), state, perplexity)
        rates.append(state.learning_rate)
    assert rates == [1.0] * 6 + [0.9] * 2


def test_plateau_ignores_reductions_below_1e8():
    state = ScheduleState(1e-8, best=1.0, bad=0)
    assert schedule_after_validation(PlateauSchedule(factor=0.9, patience=0), state, 2.0).learning_rate == 1e-8


@pytest.mark.parametrize("settings", [ConstantSchedule(), WarmupSchedule(kind="warmup", warmup_steps=10)])
def test_other_schedules_ignore_validation(settings):
    state = ScheduleState(0.1)
    assert schedule_after_validation(settings, state, 5.0) is state


def test_warmup_schedule_is_linear_then_inverse_square_root():
    rates = [
        rate_of_update(WarmupSchedule(kind="warmup", warmup_steps=4), ScheduleState(0.1), update)
        for update in (1, 2, 4, 16, 64)
    ]
    assert rates == pytest.approx([0.025, 0.05, 0.1, 0.05, 0.025], rel=1e-15)


def test_linear_schedule_with_warmup():
    settings = LinearSchedule(kind="linear", total_steps=10, end_learning_rate=0.01, warmup_steps=2)
    rates = [rate_of_update(settings, ScheduleState(0.09), update) for update in (1, 2, 3, 7, 10, 11, 1000)]
    assert rates == pytest.approx([0.045, 0.09, 0.09, 0.05, 0.02, 0.01, 0.01], rel=1e-12)


def test_linear_schedule_without_warmup_equals_you_et_al():
    settings = LinearSchedule(kind="linear", total_steps=100_000, end_learning_rate=1e-5)
    rates = [rate_of_update(settings, ScheduleState(3e-4), update) for update in (1, 50_001, 100_001)]
    assert rates == pytest.approx([3e-4, 1.55e-4, 1e-5], rel=1e-12)


def test_a_linear_schedule_without_an_end_ends_with_the_run():
    settings = TrainingSettings(schedule={"kind": "linear", "warmup_steps": 3})
    assert with_total_steps(settings, 40).schedule == LinearSchedule(kind="linear", total_steps=40, warmup_steps=3)
    given = TrainingSettings(schedule={"kind": "linear", "total_steps": 9})
    assert with_total_steps(given, 40) is given
    with pytest.raises(SettingsError, match="warmup_steps=3; expected less than total_steps=3, the updates of the run"):
        with_total_steps(settings, 3)
    with pytest.raises(ValueError, match="null needs max_updates or max_epochs"):
        TrainingSettings(schedule="linear", max_epochs=None)


def test_warmup_as_long_as_the_schedule_is_rejected():
    with pytest.raises(ValueError, match="warmup_steps=10; expected less than total_steps=10"):
        LinearSchedule(kind="linear", total_steps=10, warmup_steps=10)


def test_warmup_schedule_equals_vaswani_et_al():
    """d^-0.5 min(u^-0.5, u w^-1.5), with rate 1 / sqrt(d w)."""
    d, w = 512, 4000
    for update in (1, 100, 4000, 100_000):
        rate = rate_of_update(WarmupSchedule(kind="warmup", warmup_steps=w), ScheduleState((d * w) ** -0.5), update)
        assert rate == pytest.approx(d**-0.5 * min(update**-0.5, update * w**-1.5), rel=1e-12)


@pytest.mark.parametrize("settings", [ConstantSchedule(), PlateauSchedule()])
def test_constant_and_plateau_schedules_use_the_rate_of_the_state(settings):
    assert rate_of_update(settings, ScheduleState(0.1), 7) == 0.1


def rates(settings, rate, updates):
    return [rate_of_update(settings, ScheduleState(rate), update) for update in updates]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_cosine_schedule_equals_torch():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.01)
    settings, expected = CosineSchedule(kind="cosine", total_steps=20, end_learning_rate=0.01), []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        theirs.step()
    assert rates(settings, 0.3, range(1, 21)) == pytest.approx(expected, rel=1e-12)
    assert rates(settings, 0.3, [21, 1000]) == pytest.approx([0.01, 0.01], rel=1e-12)


def test_cosine_schedule_with_warmup():
    settings = CosineSchedule(kind="cosine", total_steps=14, warmup_steps=4, end_learning_rate=0.2)
    assert rates(settings, 1.0, [1, 2, 4, 5, 10, 15, 99]) == pytest.approx([0.25, 0.5, 1, 1, 0.6, 0.2, 0.2], rel=1e-12)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("linear", [0.9, 0.75, 0.6, 0.45, 0.3]),
        ("sqrt", [1.2 - 0.9 * part**0.5 for part in (1 / 3, 0.5, 2 / 3, 5 / 6, 1)]),
    ],
)
def test_wsd_schedule(decay, expected):
    """Two updates of warm-up, four of the highest rate, six of decay."""
    settings = WsdSchedule(
        kind="wsd", total_steps=12, warmup_steps=2, decay_steps=6, end_learning_rate=0.3, decay=decay
    )
    assert rates(settings, 1.2, [1, 2, 3, 7]) == pytest.approx([0.6, 1.2, 1.2, 1.2], rel=1e-12)
    assert rates(settings, 1.2, [9, 10, 11, 12, 13]) == pytest.approx(expected, rel=1e-12)
    assert rates(settings, 1.2, [13, 500]) == pytest.approx([0.3, 0.3], rel=1e-12)


def test_the_decay_of_wsd_is_a_fifth_by_default():
    settings = WsdSchedule(kind="wsd", total_steps=10)
    assert rates(settings, 1.0, [7, 8, 9, 10, 11]) == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.0])
    short = WsdSchedule(kind="wsd", total_steps=10, warmup_steps=9)
    assert rates(short, 1.0, [8, 9, 10, 11]) == pytest.approx([8 / 9, 1.0, 1.0, 0.0])


def test_warmup_and_decay_that_are_too_long_are_rejected():
    with pytest.raises(ValueError, match="warmup_steps=5 and decay_steps=6; expected a sum of at most total_steps=10"):
        WsdSchedule(kind="wsd", total_steps=10, warmup_steps=5, decay_steps=6)
    settings = TrainingSettings(schedule={"kind": "wsd", "warmup_steps": 5, "decay_steps": 6})
    with pytest.raises(SettingsError, match="at most total_steps=10, the updates of the run"):
        with_total_steps(settings, 10)


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_every_schedule_with_an_end_ends_with_the_run(kind):
    settings = with_total_steps(TrainingSettings(schedule=kind), 30).schedule
    assert settings.total_steps == 30
    assert rates(settings, 0.5, [31]) == [pytest.approx(0.0, abs=1e-15)]


@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_every_update_trains(kind, warmup):
    """Update k of n after the warm-up has r + (e - r) k / n, k = 0 ... n - 1, and cosine and wsd alike."""
    settings = TrainingSettings(schedule={"kind": kind, "warmup_steps": warmup}, max_updates=10)
    schedule = with_total_steps(settings, 10).schedule
    found = rates(schedule, 0.5, range(1, 11))
    assert min(found) > 0
    assert found[warmup] == 0.5
    if kind == "linear":
        left = 10 - warmup
        assert found[warmup:] == pytest.approx([0.5 - 0.5 * k / left for k in range(left)], rel=1e-12)
