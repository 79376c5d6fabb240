"""What every attention layer must do: checks of a layer in evaluation mode, on examples x (B, T, d_model).

Each check raises ``BrokenContractError``. A layer that chooses positions gets zeros for the gradient of its choice.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.autograd import gradcheck

from structattn.support.errors import BrokenContractError

WHOLE: Final = "that of the whole sequence"
ALONE: Final = "that of the sequence alone"
BEFORE: Final = "that before"


def require_close(what: str, result: Tensor, reference: str, expected: Tensor, tolerance: float) -> None:
    """Check that ‖result - expected‖ <= tolerance ‖expected‖.

    Raises:
        BrokenContractError: it is larger, or a number is NaN.
    """
    _require_shape(what, result, expected)
    error = (result - expected).norm().item() / max(expected.norm().item(), 1e-30)
    if not error <= tolerance:
        raise BrokenContractError(f"{what} differs from {reference}: relative error {error:.1e}")


def require_equal(what: str, result: Tensor, reference: str, expected: Tensor) -> None:
    """Check that two tensors are equal.

    Raises:
        BrokenContractError: they are not, or a number is NaN.
    """
    _require_shape(what, result, expected)
    if not torch.equal(result, expected):
        raise BrokenContractError(f"{what} differs from {reference} by up to {(result - expected).abs().max():.1e}")


def require_zero(what: str, result: Tensor) -> None:
    """Check that all numbers are 0.

    Raises:
        BrokenContractError: one is not.
    """
    if (result != 0).any():
        raise BrokenContractError(f"{what} is up to {result.abs().max():.1e}; expected 0")


def _require_shape(what: str, result: Tensor, expected: Tensor) -> None:
    if result.shape != expected.shape:
        raise BrokenContractError(f"{what} has shape {tuple(result.shape)}; expected {tuple(expected.shape)}")


TOLERANCE: Final = MappingProxyType({torch.float32: 1e-5, torch.float64: 1e-12})
"""The largest relative error of a step against the whole sequence."""
POISON: Final = (123.0, float("nan"), float("inf"))
"""What padding may hold."""
ORDINARY: Final = "that beside padding with ordinary numbers"


def check_causal(layer: nn.Module, x: Tensor) -> None:
    """Later positions have no influence, and get no gradient."""
    half, changed = x.shape[1] // 2, x.clone()
    changed[:, half:] = -2 * changed[:, half:] + 1
    require_equal("an output after a change of later positions", layer(changed)[:, :half], BEFORE, layer(x)[:, :half])
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, :half].sum(), x, materialize_grads=True)
    require_zero("the gradient of a later position", gradient[:, half:])


def check_padding(layer: nn.Module, x: Tensor) -> None:
    """Padding has no influence, even NaN; outputs and gradients are zero there."""
    lengths = _lengths(x)
    past = torch.arange(x.shape[1]) >= lengths[:, None]
    clean, clean_gradients = output_and_gradients(layer, x, lengths, torch.ones_like(x))
    for poison in POISON:
        poisoned = [each.masked_fill(past[..., None], poison) for each in (x, torch.ones_like(x))]
        y, gradients = output_and_gradients(layer, poisoned[0], lengths, poisoned[1])
        require_zero(f"the output at padding that holds {poison}", y[past])
        require_equal(f"an output beside padding that holds {poison}", y, ORDINARY, clean)
        require_zero("the gradient of padding", gradients[0][past])
        for result, expected in zip(gradients, clean_gradients, strict=True):
            require_equal(f"a gradient beside padding that holds {poison}", result, ORDINARY, expected)


def check_batches(layer: nn.Module, x: Tensor) -> None:
    """A sequence alone equals the same sequence in a padded batch, in any order; so do its gradients."""
    lengths = torch.arange(len(x)) * 3 % x.shape[1] + 1
    here = torch.arange(x.shape[1]) < lengths[:, None]
    weight = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape).sin() * here[..., None]
    together, (grad_x, *grads) = output_and_gradients(layer, x, lengths, weight)
    sums = [torch.zeros_like(grad) for grad in grads]
    for b, length in enumerate(lengths.tolist()):
        alone, (grad_alone, *more) = output_and_gradients(
            layer, x[b : b + 1, :length], None, weight[b : b + 1, :length]
        )
        require_close("an output in a batch", together[b, :length], ALONE, alone[0], 1e-12)
        require_close("a gradient in a batch", grad_x[b, :length], ALONE, grad_alone[0], 1e-12)
        sums = [total + grad for total, grad in zip(sums, more, strict=True)]
    for result, expected in zip(grads, sums, strict=True):
        require_close("the gradient of a parameter in a batch", result, "the sum of those", expected, 1e-11)
    order = torch.arange(len(x)).roll(1)
    expected = layer(x, lengths)[order]
    require_close("an output in another order of the batch", layer(x[order], lengths[order]), BEFORE, expected, 1e-15)
    whole = torch.full((len(x),), x.shape[1])
    require_equal("an output with lengths of whole sequences", layer(x, whole), "that without lengths", layer(x))


def check_steps(layer: Any, x: Tensor) -> None:
    """Steps equal the whole sequence, and so do their gradients."""
    layer, x = copy.deepcopy(layer).to(x.dtype), x.detach().requires_grad_()
    require_same_steps([x, *layer.parameters()], layer(x), lambda: by_steps(layer, layer.initial_state(len(x)), x))


def require_same_steps(leaves: Sequence[Tensor], whole: Tensor, steps: Callable[[], Tensor]) -> None:
    """Check that outputs of steps are those of the whole sequence, and that so are the gradients of the leaves.

    Args:
        leaves: the first are the inputs.
        whole: the outputs.
        steps: computes them step by step.

    Raises:
        BrokenContractError: a number differs by more than ``TOLERANCE``, or steps have another dtype.
    """
    tolerance, found = TOLERANCE[leaves[0].dtype], steps()
    if found.dtype != leaves[0].dtype:
        raise BrokenContractError(f"a step returns {found.dtype}; expected {leaves[0].dtype}")
    require_close("an output of a step", found, WHOLE, whole, tolerance)
    with torch.no_grad():
        require_close("an output of a step without gradients", steps(), WHOLE, whole, tolerance)
    wanted = torch.autograd.grad(whole.square().sum(), leaves, materialize_grads=True)
    given = torch.autograd.grad(found.square().sum(), leaves, materialize_grads=True)
    for result, expected in zip(given, wanted, strict=True):
        require_close("a gradient through steps", result, WHOLE, expected, 10 * tolerance)


def check_steps_in_float32(layer: Any, x: Tensor) -> None:
    """Steps equal the whole sequence in float32, too."""
    check_steps(layer, x.float())


@torch.no_grad()
def check_states(layer: Any, x: Tensor) -> None:
    """A state is a value: a step leaves it as it was; select copies members of the batch."""
    _, state = layer.step(x[:, 0], layer.initial_state(len(x)))
    first, _ = layer.step(x[:, 1], state)
    layer.step(x[:, 2], state)
    require_equal("a second step from the same state", layer.step(x[:, 1], state)[0], "the first", first)
    chosen = torch.arange(len(x)).repeat_interleave(2).roll(1)
    one, two, mixed = state, state.select(chosen), torch.cat([x[chosen, :1], x.flip(0)[chosen, 1:]], dim=1)
    for t in range(1, x.shape[1]):
        y, one = layer.step(x[:, t], one)
        z, two = layer.step(mixed[:, t], two)
    require_close("a branch", y, WHOLE, layer(x)[:, -1], 1e-12)
    require_close("a branch that was selected", z, WHOLE, layer(mixed)[:, -1], 1e-12)
    picked, x_t = torch.tensor([3, 1]), x[:2, 2]
    twice, _ = layer.step(x_t, state.select(chosen).select(picked))
    once, _ = layer.step(x_t, state.select(chosen[picked]))
    require_close("a step from a state that was selected twice", twice, "that after one selection", once, 1e-14)


def check_gradients(layer: nn.Module, x: Tensor, fast: bool = False) -> None:
    """Gradients agree with finite differences in float64."""
    x, lengths = x[:2, :3].detach().requires_grad_(), torch.tensor([3, 2])
    if not gradcheck(lambda x, *_: layer(x, lengths), (x, *layer.parameters()), fast_mode=fast, raise_exception=False):
        raise BrokenContractError("a gradient is not that of finite differences in float64")


def check_weights(layer: nn.Module, *inputs: Tensor) -> None:
    """Saved and loaded, a layer is the same."""
    other = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(float("nan"))
    other.load_state_dict(load(save(layer.state_dict())))
    require_equal("an output after saving and loading", other(*inputs), BEFORE, layer(*inputs))


def check_empty(layer: nn.Module, x: Tensor) -> None:
    """One position, none, and an empty batch work; sequences of length 0 give zeros."""
    for shape in ((2, 1), (2, 0), (0, 4), (0, 0)):
        part = x[: shape[0], : shape[1]]
        y, grads = output_and_gradients(layer, part)
        for result in (y, grads[0]):
            if result.shape != part.shape:
                raise BrokenContractError(f"of an input {tuple(part.shape)}, a result has shape {tuple(result.shape)}")
        if not all(grad.isfinite().all() for grad in grads):
            raise BrokenContractError(f"of an input {tuple(part.shape)}, a gradient is not finite")
        zeros, _ = output_and_gradients(layer, part, torch.zeros(shape[0], dtype=torch.int64))
        require_zero("the output of a sequence of length 0", zeros)


def check_explanation(layer: Any, x: Tensor) -> None:
    """Weights of explain, (B, heads, T, sources), are causal, zero at padding and without gradients."""
    lengths = _lengths(x)
    record = layer.explain(x, lengths)
    batch, time = x.shape[:2]
    shape, expected = tuple(record.weights.shape), (batch, time, time + record.first_source)
    if len(shape) != 4 or (shape[0], *shape[2:]) != expected:
        raise BrokenContractError(f"weights have shape {shape}; expected ({batch}, heads, {time}, {expected[-1]})")
    past = torch.arange(time) >= lengths[:, None]
    for name, tensor in {"weights": record.weights.transpose(1, 2), **record.details}.items():
        if tensor.requires_grad:
            raise BrokenContractError(f"{name} have gradients")
        require_zero(f"the {name} at padding", tensor[past])
    require_zero("the weight of a later position", record.weights.triu(1 + record.first_source))


CHECKS: Final[Mapping[str, Callable[[Any, Tensor], None]]] = MappingProxyType(
    {
        "steps": check_steps,
        "steps in float32": check_steps_in_float32,
        "causal": check_causal,
        "batches": check_batches,
        "padding": check_padding,
        "states": check_states,
        "gradients": check_gradients,
        "weights": check_weights,
        "empty": check_empty,
        "explanation": check_explanation,
    }
)


def by_steps(layer: Any, state: Any, x: Tensor) -> Tensor:
    """Return the outputs (B, T, d_model) of a layer step by step."""
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1)


def output_and_gradients(
    layer: nn.Module, x: Tensor, lengths: Tensor | None = None, weight: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the output, and the gradients of x and of all parameters for a cotangent."""
    x = x.detach().requires_grad_()
    y = layer(x, lengths)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape).sin() if weight is None else weight
    return y.detach(), torch.autograd.grad(y, [x, *layer.parameters()], weight, materialize_grads=True)


def _lengths(x: Tensor) -> Tensor:
    """Return lengths of which one is that of the examples, and one is 0."""
    return torch.arange(len(x)).flip(0) * x.shape[1] // (len(x) - 1)
