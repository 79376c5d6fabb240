"""A fast form of a model: the model again, with other ``Layers``."""

import logging
from typing import TypeVar, cast

from torch import nn

from structattn.fast.check import disagreement
from structattn.fast.decoder import accelerate_decoder
from structattn.fast.layers import FastLayers, replaceable_sublayers, shallow_copy
from structattn.models import EncoderDecoder
from structattn.models.layers import Layers

ModelT = TypeVar("ModelT", bound=nn.Module)
logger = logging.getLogger(__name__)


def accelerate(model: ModelT) -> ModelT:
    """Return the fast form of a model, or the model; see ``structattn.accelerate``."""
    found = {name: module for name, module in model.named_modules() if replaceable_sublayers(module)}
    for name, layers in found.items():
        reason = disagreement(cast(Layers, layers), name)
        if reason is not None:
            logger.warning("%s; the modules of the model are called one by one", reason)
            return model
    forms: dict[nn.Module, nn.Module] = {module: FastLayers.of(cast(Layers, module)) for module in found.values()}
    form = _form(model, forms)
    return cast(ModelT, _with_fast_steps(model, form) if isinstance(model, EncoderDecoder) else form)


def _form(module: nn.Module, forms: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return a module with fast forms of its descendants; itself if it has none. ``forms`` are those known."""
    if module not in forms:
        children = {name: child and _form(child, forms) for name, child in module._modules.items()}
        changed = any(child is not module._modules[name] for name, child in children.items())
        forms[module] = shallow_copy(module, type(module), children) if changed else module
    return forms[module]


def _with_fast_steps(model: EncoderDecoder, form: nn.Module) -> nn.Module:
    """Return a form with the states and steps of the decoder's kernel, where that computes the same."""
    decoder = accelerate_decoder(model)
    if decoder is model:
        return form
    stepped = shallow_copy(model, type(model), form._modules)
    vars(stepped).update(initial_state=decoder.initial_state, step=decoder.step)
    return stepped
