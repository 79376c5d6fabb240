"""What learns: a model, its optimizer, and the device and precision they run in."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor

from structattn.settings.training import AdamSettings, TrainingSettings

_PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}

logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces every choice that it makes


@dataclass(frozen=True)
class Learner:
    """A model that is being trained.

    Args:
        fabric: where and in which precision it runs.
        model: the model as Fabric wraps it; call this one.
        module: the model itself; its names are those of the checkpoints.
        parameters: the module's parameters, in its order; to walk through the modules for them takes its time.
        optimizer: their optimizer.
    """

    fabric: Fabric
    model: torch.nn.Module
    module: torch.nn.Module
    parameters: tuple[Tensor, ...]
    optimizer: torch.optim.Optimizer

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.fabric.device

    def gradients(self) -> list[Tensor]:
        """The gradients that the last backward pass left."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def set_learning_rate(self, rate: float) -> None:
        """The rate of the next update."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def adam(parameters: Iterable[Tensor], settings: AdamSettings) -> torch.optim.AdamW:
    """Adam as torch defines it, with decoupled weight decay.

    One fused kernel, element by element, so no sum can depend on the thread count.
    """
    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def build_learner(module: torch.nn.Module, settings: TrainingSettings, accelerator: str = "auto") -> Learner:
    """Put a model on one device, with a fresh optimizer.

    Args:
        module: a model on the processor.
        settings: precision and optimizer.
        accelerator: Fabric's name of the kind of device; ``auto`` prefers a GPU.
    """
    fabric = Fabric(
        accelerator=accelerator,
        devices=1,
        precision=_PRECISIONS[settings.precision],  # type: ignore[arg-type]  # Fabric wants a literal
        plugins=[LightningEnvironment()],  # one process: a cluster's variables are not to be taken for a request
    )
    module = module.to(fabric.device)
    parameters = tuple(module.parameters())
    optimizer = adam(parameters, settings.optimizer)
    model, _ = fabric.setup(module, optimizer)
    for method in ("attend", "with_spellings"):  # what else a loss may ask for
        if hasattr(module, method):
            model.mark_forward_method(method)
    model.train()
    return Learner(fabric, model, module, parameters, optimizer)
