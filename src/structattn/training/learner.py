"""The model in training with its optimizer, on one device and in one precision."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.settings.training import AdamSettings, TrainingSettings


@dataclass(frozen=True)
class Learner:
    """A model in training.

    Args:
        model: the model, on its device, with float32 weights.
        parameters: the parameters in the order of ``model.parameters()``; walking the modules for them takes time.
        optimizer: the optimizer of these parameters.
        device: the device of the model.
        bf16: whether forward passes run under bfloat16 autocast.
    """

    model: torch.nn.Module
    parameters: tuple[Tensor, ...]
    optimizer: torch.optim.Optimizer
    device: torch.device
    bf16: bool = False

    def autocast(self) -> torch.autocast:
        """Return the context of forward passes: bfloat16 autocast if ``bf16`` is set."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the last backward pass."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]


def adam(parameters: Iterable[Tensor], settings: AdamSettings) -> torch.optim.AdamW:
    """Return PyTorch's Adam with decoupled weight decay.

    The fused kernel works element by element, so that no sum depends on the number of threads.
    """
    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def build_learner(model: torch.nn.Module, settings: TrainingSettings, device: str = "auto") -> Learner:
    """Move a model to a device and give it a fresh optimizer.

    Args:
        model: a model on the CPU.
        settings: precision and optimizer.
        device: a device of torch; ``auto`` is the first GPU if CUDA is available, the CPU otherwise.
    """
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    model = model.to(device).train()
    parameters = tuple(model.parameters())
    optimizer = adam(parameters, settings.optimizer)
    return Learner(model, parameters, optimizer, torch.device(device), bf16=settings.precision == "bf16")
