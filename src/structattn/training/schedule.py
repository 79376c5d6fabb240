"""Learning-rate schedules as functions of their settings and state."""

import math
from dataclasses import replace

from structattn.runs.state import ScheduleState
from structattn.settings.training import ConstantSchedule, LinearSchedule, PlateauSchedule, WarmupSchedule

ScheduleSettings = ConstantSchedule | LinearSchedule | PlateauSchedule | WarmupSchedule

PLATEAU_THRESHOLD = 1e-4  # relative; torch's default
PLATEAU_SMALLEST_CHANGE = 1e-8  # absolute; torch's default


def rate_of_update(settings: ScheduleSettings, state: ScheduleState, update: int) -> float:
    """Return the learning rate of an update, counted from 1.

    Constant and plateau: the state's rate r. Warm-up over n updates: r · min(update / n, sqrt(n / update)); the rule of
    Vaswani et al. (2017) is that with r = 1 / sqrt(d n). Linear, warm-up over w of n updates:
    r · update / w up to w, from there r + (end - r) · (update - w) / (n - w), and end from n on.
    """
    if isinstance(settings, LinearSchedule):
        return _linear(settings, state.learning_rate, update)
    if isinstance(settings, WarmupSchedule):
        return state.learning_rate * min(update / settings.warmup_steps, math.sqrt(settings.warmup_steps / update))
    return state.learning_rate


def _linear(settings: LinearSchedule, rate: float, update: int) -> float:
    warmup = settings.warmup_steps
    if update < warmup:
        return rate * update / warmup
    part = min(1.0, (update - warmup) / (settings.total_steps - warmup))
    return rate + (settings.end_learning_rate - rate) * part


def after_validation(settings: ScheduleSettings, state: ScheduleState, perplexity: float) -> ScheduleState:
    """Return the state after a validation; only the plateau schedule changes.

    The rule is that of ``torch.optim.lr_scheduler.ReduceLROnPlateau``: a perplexity is good if it is below
    best · (1 - 1e-4), and the rate falls when there have been more than ``patience`` validations in a row that
    were not, so with the patience of 5 of DuSell & Chiang (2024) after the sixth.
    """
    if not isinstance(settings, PlateauSchedule):
        return state
    if state.best is None or perplexity < state.best * (1 - PLATEAU_THRESHOLD):
        return replace(state, best=perplexity, bad=0)
    if state.bad < settings.patience:
        return replace(state, bad=state.bad + 1)
    lower = state.learning_rate * settings.factor
    changed = state.learning_rate - lower > PLATEAU_SMALLEST_CHANGE
    return replace(state, learning_rate=lower if changed else state.learning_rate, bad=0)
