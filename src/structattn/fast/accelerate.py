"""A fast form of a model: the model again, with other ``Layers``, and its comparison with the modules."""

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from structattn.fast.decoder import accelerate_decoder
from structattn.fast.layers import FastLayers, Kernel, replaceable_sublayers, shallow_copy
from structattn.fast.own_numbers import OwnNumbers, generator_restored, may_draw_otherwise
from structattn.models import EncoderDecoder
from structattn.models.layers import Layers

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of relative differences
_NEGLIGIBLE = 1e-3  # a tensor that is smaller than the largest by this factor is compared with what is left of that
_LENGTHS = ([1, 1], [11, 4])  # of the sequences of each batch
_MEMORY_LENGTHS = [5, 2]


class _Batch(NamedTuple):
    """Arguments of ``Layers.body``."""

    x: Tensor
    lengths: Tensor | None
    memory: Tensor | None
    memory_lengths: Tensor | None


def disagreement(layers: Layers, name: str) -> str | None:
    """Return as a sentence where the kernels do not compute what the modules do; None if they do.

    A copy of the layers is computed both ways: the model does not change, and torch's generators stay as they are.
    """
    for path, module in layers.named_modules(prefix=name):
        if "forward" in vars(module):
            return f"{_label(path, module)} has a forward method of its own"
    try:
        restored = generator_restored(may_draw_otherwise(layers.modules()))
        with restored, torch.inference_mode(False), torch.autocast("cpu", enabled=False):
            # twice: between seeding and drawing, other threads may have drawn what was for a module
            return _compared(copy.deepcopy(layers), name) and _compared(copy.deepcopy(layers), name)
    except Exception as error:  # modules that anyone may have written
        return f"{_label(name, layers)} cannot be compared with its kernels: {type(error).__name__}: {error}"


def _label(path: str, module: nn.Module) -> str:
    return f"{path or 'the model'} ({type(module).__name__})"


def _compared(layers: Layers, name: str) -> str | None:
    """Return the same for layers whose weights and mode may be changed."""
    fast = FastLayers.of(layers.requires_grad_())
    for hooks in fast.hooks:
        hooks.clear()  # what they see should be the user's
    generator = torch.Generator("cpu").manual_seed(1)
    _randomize(layers, generator)
    batches = list(_batches(fast, generator))
    tolerance, kernels = TOLERANCE[batches[0].x.dtype], fast.kernels

    def difference(some: dict[nn.Module, Kernel]) -> float:
        fast.kernels = some
        return max(_difference(fast, layers.body, batch) for batch in batches)

    worst = difference(kernels)
    if worst <= tolerance:
        return None
    culprit = _label(name, layers)
    if difference({}) <= tolerance:
        for path, module in layers.named_modules(prefix=name):
            if module in kernels and (alone := difference({module: kernels[module]})) > tolerance:
                culprit, worst = _label(f"{path}.layer", kernels[module].residual.layer), alone
                break
    return f"{culprit} and its kernel differ by {worst:.2g} of their values"


def _randomize(layers: Layers, generator: torch.Generator) -> None:
    """Fill all weights, so that what begins at zero has an effect."""
    with torch.no_grad():
        for parameter in layers.parameters():
            inputs = parameter[0].numel() if parameter.dim() > 1 else 3
            random = torch.empty_like(parameter, device="cpu").uniform_(-1, 1, generator=generator)
            parameter.copy_(random.mul_((3 / max(inputs, 1)) ** 0.5))


def _batches(fast: FastLayers, generator: torch.Generator) -> Iterator[_Batch]:
    """Return random inputs."""
    scale = next(iter(fast.kernels.values())).weights()[0]
    crosses = any(getattr(block, "cross", None) is not None for block in fast.blocks)

    def states(longest: int) -> Tensor:
        shape = len(_MEMORY_LENGTHS), longest, len(scale)
        return torch.randn(shape, generator=generator, dtype=scale.dtype, device=scale.device).requires_grad_()

    for lengths in _LENGTHS:
        padded = torch.tensor(lengths, device="cpu") if len(set(lengths)) > 1 else None
        memory = (
            (states(max(_MEMORY_LENGTHS)), torch.tensor(_MEMORY_LENGTHS, device="cpu")) if crosses else (None, None)
        )
        yield _Batch(states(max(lengths)), padded, *memory)


def _difference(fast: FastLayers, plain: Callable[..., Any], batch: _Batch) -> float:
    """Return the largest relative difference of outputs and gradients in training, and of outputs in evaluation."""
    found: list[Tensor] = []
    for training in (True, False):
        fast.train(training)
        expected, other = (_results(form, fast, batch) for form in (plain, fast.body_by_kernels))
        sizes = torch.stack([tensor.norm() for tensor in expected])
        errors = torch.stack([(one - two).norm() for one, two in zip(expected, other, strict=True)])
        found.append((errors / sizes.clamp(min=_NEGLIGIBLE * float(sizes.max()))).max())
    return float(torch.stack(found).nan_to_num(nan=torch.inf).max())


def _results(form: Callable[..., Any], layers: Layers, batch: _Batch) -> list[Tensor]:
    """Return the output and, in training, the gradient of each input and weight: zeros where there is none."""
    if may_draw_otherwise(layers.modules()):
        torch.default_generator.manual_seed(2)
    with OwnNumbers(2), torch.set_grad_enabled(layers.training):
        y = form(*batch)
    if not layers.training:
        return [y]
    inputs = [tensor for tensor in (batch.x, batch.memory, *layers.parameters()) if tensor is not None]
    cotangent = torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).sin().view(y.shape)
    return [y.detach(), *torch.autograd.grad(y, inputs, cotangent, materialize_grads=True)]


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
