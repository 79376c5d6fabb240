"""Optimizers, and schedules of the learning rate and the temperature."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from structattn.runs.checkpoint import ScheduleState
from structattn.settings.base import words_of
from structattn.settings.optimizers import (
    AdafactorSettings,
    AdamWSettings,
    ConstantSchedule,
    CosineSchedule,
    EndingSchedule,
    LinearSchedule,
    MuonSettings,
    OptimizerSettings,
    PlateauSchedule,
    RmspropSettings,
    SgdSettings,
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


def ending_rate(settings: EndingSchedule, rate: float, update: int) -> float:
    """Return r u / w up to w, the end of the warm-up; then r until the decay, r + (e - r) f(x) in it, and e after it.

    Update k = 0, 1, ..., d - 1 of the decay has x = k / d, so that all updates train. The decay has the d = n - w
    updates after the warm-up, and f(x) is x (linear) or (1 - cos πx) / 2 (cosine; Loshchilov & Hutter 2017, without
    restarts). With wsd, it has the last d updates, by default a fifth of n, rounded up, but not more than n - w; there
    f(x) is x or sqrt(x).
    """
    assert settings.total_steps is not None, "with_total_steps sets it"
    total, warmup = settings.total_steps, settings.warmup_steps
    if update <= warmup:
        return rate * update / warmup
    decay = total - warmup
    if isinstance(settings, WsdSchedule):
        decay = settings.decay_steps or min(-(-total // 5), decay)
    part = min(1.0, max(0.0, (update - 1 - (total - decay)) / decay))
    if isinstance(settings, CosineSchedule):
        part = (1 - math.cos(math.pi * part)) / 2
    elif isinstance(settings, WsdSchedule) and settings.decay == "sqrt":
        part = math.sqrt(part)
    return rate + (settings.end_learning_rate - rate) * part


def warmup_rate(settings: WarmupSchedule, rate: float, update: int) -> float:
    """Return r · min(u / w, sqrt(w / u)); with r = 1 / sqrt(d w) the rule of Vaswani et al. (2017)."""
    return rate * min(update / settings.warmup_steps, math.sqrt(settings.warmup_steps / update))


def temperature_of_update(settings: TemperatureSchedule, update: int) -> float:
    """Return start · (end / start)^x, x = (u - a) / n between 0 and 1: update u, from 1, of a decay over n after a."""
    part = min(1.0, max(0.0, (update - settings.after) / settings.updates))
    return float(settings.start * (settings.end / settings.start) ** part)


RATES: dict[type[ScheduleSettings], Callable[[Any, float, int], float]] = {
    CosineSchedule: ending_rate,
    LinearSchedule: ending_rate,
    WarmupSchedule: warmup_rate,
    WsdSchedule: ending_rate,
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


Optimizers = tuple[torch.optim.Optimizer, ...]


def build_optimizers(model: nn.Module, settings: OptimizerSettings) -> Optimizers:
    """Return the optimizers of a model: two for Muon, otherwise one.

    Raises:
        SettingsError: Muon, and the model has no matrices in its layers.
    """
    if not isinstance(settings, MuonSettings):
        return (_build(model.parameters(), settings),)
    matrices = hidden_matrices(model)
    if not matrices:
        raise SettingsError("training.optimizer.kind: 'muon' is for the matrices of layers; the model has none")
    chosen = {id(matrix) for matrix in matrices}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    factor = settings.adamw.learning_rate / settings.learning_rate
    return _build(matrices, settings), _build(others, settings.adamw, factor)


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """Return the matrices that Muon optimizes: 2-D weights of modules below the direct children of the model.

    Those children are embeddings and output layers; other embeddings, and what is tied to one, are left out as well.
    """
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    return [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2 and id(parameter) not in embeddings
        if name.count(".") > 1 and name.rpartition(".")[2].startswith("weight")
    ]


def _build(parameters: Iterable[Tensor], settings: OptimizerSettings, factor: float = 1.0) -> torch.optim.Optimizer:
    kind, options = _options(settings)
    group = {"params": list(parameters), "lr": settings.learning_rate, "factor": factor}
    optimizer: torch.optim.Optimizer = kind([group], weight_decay=settings.weight_decay, **options)
    return optimizer


def _options(settings: OptimizerSettings) -> tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]:
    """Return torch's optimizer and its own options."""
    match settings:
        case AdamWSettings():  # the fused kernels work element by element: no sum depends on the number of threads
            return torch.optim.AdamW, {"betas": settings.betas, "eps": settings.epsilon, "fused": True}
        case SgdSettings():
            return torch.optim.SGD, settings.model_dump(include={"momentum", "dampening", "nesterov"})
        case RmspropSettings():
            own = settings.model_dump(include={"alpha", "momentum", "centered"})
            return torch.optim.RMSprop, {"eps": settings.epsilon, **own}
        case AdafactorSettings():
            own = {"beta2_decay": settings.beta2_decay, "eps": settings.epsilon, "d": settings.clip_threshold}
            return torch.optim.Adafactor, own
        case MuonSettings():
            own = settings.model_dump(include={"momentum", "nesterov"})
            steps, adjust = settings.newton_schulz_steps, settings.adjust_learning_rate
            return torch.optim.Muon, {"ns_steps": steps, "adjust_lr_fn": adjust, **own}


def expected_state(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Return tensors with the shapes, dtypes and devices of the state that an optimizer has of a parameter."""
    group, step = optimizer.param_groups[0], torch.zeros(())  # a counter of updates, on the CPU
    if isinstance(optimizer, torch.optim.AdamW):
        return {"step": step.to(parameter.device), "exp_avg": parameter, "exp_avg_sq": parameter}
    if isinstance(optimizer, torch.optim.Adafactor):
        return {"step": step, **_second_moments(parameter)}
    if isinstance(optimizer, torch.optim.Muon):
        return {"momentum_buffer": parameter}  # also without momentum
    momentum = {"momentum_buffer": parameter} if group["momentum"] else {}
    if isinstance(optimizer, torch.optim.RMSprop):
        mean = {"grad_avg": parameter} if group["centered"] else {}
        return {"step": step, "square_avg": parameter, **momentum, **mean}
    return momentum


def _second_moments(parameter: Tensor) -> dict[str, Tensor]:
    if parameter.ndim < 2:
        return {"variance": parameter}
    return {
        "row_var": parameter.new_empty(*parameter.shape[:-1], 1),
        "col_var": parameter.new_empty(*parameter.shape[:-2], 1, parameter.shape[-1]),
    }
