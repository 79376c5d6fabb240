"""Build the optimizers of a model, and restore their state; the formulas are those of ``torch.optim``.

Each group of parameters has ``factor``, its learning rate divided by that of the settings, to which schedules apply.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from structattn.settings.optimizers import (
    AdafactorSettings,
    AdamWSettings,
    MuonSettings,
    OptimizerSettings,
    RmspropSettings,
    SgdSettings,
)
from structattn.support.errors import SettingsError

Optimizers = tuple[torch.optim.Optimizer, ...]


def build_optimizers(model: nn.Module, settings: OptimizerSettings) -> Optimizers:
    """Return the optimizers of a model: two for Muon, otherwise one.

    Raises:
        SettingsError: Muon, and the model has no matrices in its layers.
    """
    if not isinstance(settings, MuonSettings):
        return (_BUILDERS[type(settings)](list(model.parameters()), settings, 1.0),)
    matrices = hidden_matrices(model)
    if not matrices:
        raise SettingsError("training.optimizer.kind: 'muon' is for the matrices of layers; the model has none")
    chosen = {id(matrix) for matrix in matrices}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    factor = settings.adamw.learning_rate / settings.learning_rate
    return _muon(matrices, settings, 1.0), _adamw(others, settings.adamw, factor)


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """Return the matrices that Muon optimizes: 2-D weights of modules below the direct children of the model.

    Those children are embeddings and output layers; other embeddings, and what is tied to one, are left out as well.
    """
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    return [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2 and _is_weight(name) and id(parameter) not in embeddings
    ]


def _is_weight(name: str) -> bool:
    return name.count(".") > 1 and name.rpartition(".")[2].startswith("weight")


def _group(parameters: Sequence[Tensor], learning_rate: float, factor: float) -> list[dict[str, Any]]:
    return [{"params": list(parameters), "lr": learning_rate, "factor": factor}]


def _adamw(parameters: Sequence[Tensor], settings: AdamWSettings, factor: float) -> torch.optim.Optimizer:
    """Return AdamW; its kernels work element by element, so that no sum depends on the number of threads."""
    return torch.optim.AdamW(
        _group(parameters, settings.learning_rate, factor),
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _sgd(parameters: Sequence[Tensor], settings: SgdSettings, factor: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        _group(parameters, settings.learning_rate, factor),
        momentum=settings.momentum,
        dampening=settings.dampening,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
    )


def _rmsprop(parameters: Sequence[Tensor], settings: RmspropSettings, factor: float) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(
        _group(parameters, settings.learning_rate, factor),
        alpha=settings.alpha,
        eps=settings.epsilon,
        momentum=settings.momentum,
        centered=settings.centered,
        weight_decay=settings.weight_decay,
    )


def _adafactor(parameters: Sequence[Tensor], settings: AdafactorSettings, factor: float) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(
        _group(parameters, settings.learning_rate, factor),
        beta2_decay=settings.beta2_decay,
        eps=settings.epsilon,
        d=settings.clip_threshold,
        weight_decay=settings.weight_decay,
    )


def _muon(parameters: Sequence[Tensor], settings: MuonSettings, factor: float) -> torch.optim.Optimizer:
    return torch.optim.Muon(
        _group(parameters, settings.learning_rate, factor),
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        ns_steps=settings.newton_schulz_steps,
        adjust_lr_fn=settings.adjust_learning_rate,
        weight_decay=settings.weight_decay,
    )


_BUILDERS: Mapping[type, Callable[[Sequence[Tensor], Any, float], torch.optim.Optimizer]] = {
    AdamWSettings: _adamw,
    SgdSettings: _sgd,
    RmspropSettings: _rmsprop,
    AdafactorSettings: _adafactor,
}


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
