"""Schedules: the learning rate and the temperature of each update, and what a validation changes."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from structattn.runs.state import ScheduleState
from structattn.settings.base import words_of
from structattn.settings.schedules import (
    ConstantSchedule,
    CosineSchedule,
    EndingSchedule,
    LinearSchedule,
    PlateauSchedule,
    TemperatureSchedule,
    WarmupSchedule,
    WsdSchedule,
)
from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError

ScheduleSettings = ConstantSchedule | EndingSchedule | PlateauSchedule | WarmupSchedule

PLATEAU_THRESHOLD = 1e-4  # relative; torch's default
PLATEAU_SMALLEST_CHANGE = 1e-8  # absolute; torch's default


def with_total_steps(settings: TrainingSettings, planned: int | None) -> TrainingSettings:
    """Return the settings with a schedule that ends at the last of the planned updates, unless it has its own end.

    Raises:
        SettingsError: the warm-up, or warm-up and decay together, have more updates than that.
    """
    schedule = settings.schedule
    if not isinstance(schedule, EndingSchedule) or schedule.total_steps is not None:
        return settings
    try:
        ending = type(schedule).model_validate(schedule.model_dump() | {"total_steps": planned or 0})
    except ValidationError as error:
        raise SettingsError(f"training.schedule: {words_of(error.errors()[0])}, the updates of the run") from None
    return settings.model_copy(update={"schedule": ending})


def _warmed_up(settings: EndingSchedule, rate: float, update: int) -> float | None:
    """Return r · u / w during the warm-up, None after it."""
    return rate * update / settings.warmup_steps if update < settings.warmup_steps else None


def _between(settings: EndingSchedule, rate: float, part: float) -> float:
    """Return r + (end - r) · part, where part goes from 0 at the beginning of the decay to 1 at its end."""
    return rate + (settings.end_learning_rate - rate) * part


def linear_rate(settings: LinearSchedule, rate: float, update: int) -> float:
    """Return r · u / w up to w, the end of the warm-up, then r + (end - r) · (u - w) / (n - w), and end from n on."""
    assert settings.total_steps is not None, "with_total_steps sets it"
    warmup = settings.warmup_steps
    part = min(1.0, (update - warmup) / (settings.total_steps - warmup))
    warm = _warmed_up(settings, rate, update)
    return _between(settings, rate, part) if warm is None else warm


def cosine_rate(settings: CosineSchedule, rate: float, update: int) -> float:
    """Return r · u / w up to w, then r + (end - r) · (1 - cos(π (u - w) / (n - w))) / 2, and end from n on.

    Loshchilov & Hutter (2017), without restarts.
    """
    assert settings.total_steps is not None, "with_total_steps sets it"
    warmup = settings.warmup_steps
    part = min(1.0, (update - warmup) / (settings.total_steps - warmup))
    warm = _warmed_up(settings, rate, update)
    return _between(settings, rate, (1 - math.cos(math.pi * part)) / 2) if warm is None else warm


def wsd_rate(settings: WsdSchedule, rate: float, update: int) -> float:
    """Return r · u / w up to w, r until the last d of n updates, then end + (r - end) · f(x), and end from n on.

    x = (u - (n - d)) / d is the part of the decay that is done, f(x) is 1 - x or 1 - sqrt(x). Without ``decay_steps``,
    d is a fifth of n, rounded up, but not more than n - w.
    """
    assert settings.total_steps is not None, "with_total_steps sets it"
    total, warmup = settings.total_steps, settings.warmup_steps
    decay = settings.decay_steps or min(-(-total // 5), total - warmup)
    part = min(1.0, max(0.0, (update - (total - decay)) / decay))
    warm = _warmed_up(settings, rate, update)
    if warm is not None:
        return warm
    return _between(settings, rate, math.sqrt(part) if settings.decay == "sqrt" else part)


def warmup_rate(settings: WarmupSchedule, rate: float, update: int) -> float:
    """Return r · min(u / w, sqrt(w / u)); with r = 1 / sqrt(d w) the rule of Vaswani et al. (2017)."""
    return rate * min(update / settings.warmup_steps, math.sqrt(settings.warmup_steps / update))


def temperature_of_update(settings: TemperatureSchedule, update: int) -> float:
    """Return start · (end / start)^x, x = (u - a) / n between 0 and 1: update u, from 1, of a decay over n after a."""
    part = min(1.0, max(0.0, (update - settings.after) / settings.updates))
    return float(settings.start * (settings.end / settings.start) ** part)


RATES: dict[type[ScheduleSettings], Callable[[Any, float, int], float]] = {
    CosineSchedule: cosine_rate,
    LinearSchedule: linear_rate,
    WarmupSchedule: warmup_rate,
    WsdSchedule: wsd_rate,
}
"""Schedules that depend on the number u of the update, from 1: functions of settings, rate r and u."""


def schedule_after_validation(
    settings: ScheduleSettings, state: ScheduleState, perplexity: float, patient: bool = False
) -> ScheduleState:
    """Return the state after a validation; only the plateau schedule changes.

    The rule is that of ``torch.optim.lr_scheduler.ReduceLROnPlateau``: a perplexity is good if it is below
    best · (1 - 1e-4), and the rate falls when there have been more than ``patience`` validations in a row that
    were not, so with the patience of 5 of DuSell & Chiang (2024) after the sixth. If
    ``patient``, a perplexity that is not good does not count.
    """
    if not isinstance(settings, PlateauSchedule):
        return state
    if state.best is None or perplexity < state.best * (1 - PLATEAU_THRESHOLD):
        return replace(state, best=perplexity, bad=0)
    if patient:
        return state
    if state.bad < settings.patience:
        return replace(state, bad=state.bad + 1)
    lower = state.learning_rate * settings.factor
    changed = state.learning_rate - lower > PLATEAU_SMALLEST_CHANGE
    return replace(state, learning_rate=lower if changed else state.learning_rate, bad=0)
