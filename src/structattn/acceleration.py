"""Fast forms of models, where the package ``fast`` is there; without it, models run as they are."""

import logging
from importlib import import_module
from typing import TypeVar

from torch import nn

FAST = "structattn.fast"
ModelT = TypeVar("ModelT", bound=nn.Module)
_logger = logging.getLogger("structattn")


def accelerate(model: ModelT) -> ModelT:
    """Return a model of the same class and weights that computes several modules by one kernel call where it can.

        fast = structattn.accelerate(model)
        logits = fast(tokens, lengths)

    The model itself is not changed. The weights of its modules, their mode and their hooks hold at each call; after
    any other change, such as that of a method or of a submodule, call this function again. Before it returns, it
    compares both on random weights and inputs, with gradients and dropout; random generators stay as they are. Where
    they differ, it logs one warning and returns ``model``, and so it does, without a warning, if it has no kernel for
    any of the modules.

    Args:
        model: with ``Layers`` that are small, on a CPU, in float32 or float64; steps of an ``EncoderDecoder`` of any
            size have a kernel in float32, outside of training mode and without gradients.
    """
    try:
        package = import_module(FAST)
    except ModuleNotFoundError as error:
        if error.name != FAST:
            raise
        accelerated = model
    else:
        accelerated = package.accelerate(model)
    _logger.info("the model, %s, runs %s", type(model).__name__, _form(model, accelerated))
    return accelerated


def _form(model: nn.Module, accelerated: nn.Module) -> str:
    if accelerated is model:
        return "module by module"
    if "step" in vars(accelerated):
        return "in kernels that compute several modules, and so do its steps in decoding"
    return "in kernels that compute several modules"
