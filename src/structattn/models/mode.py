"""Evaluation mode for the length of a block of code, with or without dropout."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from structattn.support.devices import device_of

ModelT = TypeVar("ModelT", bound=nn.Module)


@contextmanager
def evaluating(model: ModelT) -> Iterator[ModelT]:
    """Put a model into evaluation mode, and each submodule back into its previous mode, also after an exception.

        with evaluating(model), torch.no_grad():
            logits = model(tokens)

    Within it all submodules are in evaluation mode, as after ``model.eval()``.
    """
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, was_training in before:
            module.training = was_training


@contextmanager
def evaluating_with_dropout(model: ModelT, seed: int) -> Iterator[ModelT]:
    """Put a model into evaluation mode except for its dropout, as the code of Li et al. (2024) evaluates.

    Hard attention takes the maximum, without noise. The modes of all submodules and the states of torch's generators
    are restored at the end, also after an exception.

    Args:
        model: with dropout rates in the attribute ``dropout`` of its submodules.
        seed: of torch's global generator, from which dropout draws.
    """
    device = device_of(model)
    with evaluating(model), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for module in model.modules():
            rate = getattr(module, "dropout", None)
            module.training = isinstance(rate, float) and rate > 0
        yield model
