"""What every attention layer must do: checks of a layer in evaluation mode.

The examples are sequences x (B, T, d_model), and for cross-attention memories (B, S, d_model) after them. Each check
raises ``BrokenContractError``. A layer that chooses positions gets zeros for the gradient of its choice.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.autograd import gradcheck

from structattn.attention.protocols import Explanation
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


def require_close_gradients(
    names: Sequence[str], results: Sequence[Tensor], reference: str, expected: Sequence[Tensor], tolerance: float
) -> None:
    """Check that ‖result - expected‖ <= tolerance ‖expected‖ for each gradient.

    Those below a hundredth of the largest one are measured against that hundredth: one may be 0 but for rounding, as
    that of a bias of keys under softmax is.

    Raises:
        BrokenContractError: it is larger, or a number is NaN.
    """
    least = max([1e-30, *(each.norm().item() / 100 for each in expected)])
    for name, result, each in zip(names, results, expected, strict=True):
        what = f"the gradient of {name}"
        _require_shape(what, result, each)
        error = (result - each).norm().item() / max(each.norm().item(), least)
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
SIDES: Final = ("a gradient", "the gradient of a memory")
"""Gradients of the examples, in messages."""


def check_causal(layer: nn.Module, x: Tensor) -> None:
    """Later positions have no influence, and get no gradient."""
    half, changed = x.shape[1] // 2, x.clone()
    changed[:, half:] = -2 * changed[:, half:] + 1
    require_equal("an output after a change of later positions", layer(changed)[:, :half], BEFORE, layer(x)[:, :half])
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[:, :half].sum(), x, materialize_grads=True)
    require_zero("the gradient of a later position", gradient[:, half:])


def check_cross_positions(layer: nn.Module, x: Tensor, memory: Tensor) -> None:
    """Positions do not see each other."""
    changed = x.clone()
    changed[:, ::2] = 2.0
    found = layer(changed, memory)[:, 1::2]
    require_equal("an output after a change of other positions", found, BEFORE, layer(x, memory)[:, 1::2])


def check_padding(layer: nn.Module, *examples: Tensor) -> None:
    """Padding has no influence, even NaN; outputs and gradients are zero there."""
    lengths = _lengths(*examples)
    outside = [_past(x, ends)[..., None] for x, ends in zip(examples, lengths, strict=True)]
    ones = torch.ones_like(examples[0])
    clean, clean_gradients = output_and_gradients(layer, *examples, lengths=lengths, weight=ones)
    for poison in POISON:
        poisoned = [x.masked_fill(past, poison) for x, past in zip(examples, outside, strict=True)]
        weight = ones.masked_fill(outside[0], poison)
        y, gradients = output_and_gradients(layer, *poisoned, lengths=lengths, weight=weight)
        require_equal(f"an output beside padding that holds {poison}", y, ORDINARY, clean)
        require_zero(f"the output at padding that holds {poison}", y.masked_select(outside[0]))
        for gradient, past in zip(gradients, outside, strict=False):
            require_zero("the gradient of padding", gradient.masked_select(past))
        for gradient, expected in zip(gradients, clean_gradients, strict=True):
            require_equal(f"a gradient beside padding that holds {poison}", gradient, ORDINARY, expected)


def check_batches(layer: nn.Module, *examples: Tensor) -> None:
    """A sequence alone equals the same sequence in a padded batch, in any order; so do its gradients."""
    x, *memories = examples
    given, whole = _lengths(*examples), [torch.full((len(each),), each.shape[1]) for each in examples]
    _require_independence(layer, examples, given, given)
    if memories:  # padding on one side alone
        _require_independence(layer, examples, (given[0], None), (given[0], whole[1]))
        _require_independence(layer, examples, (None, given[1]), (whole[0], given[1]))
    full = layer(*examples, *whole)
    require_equal("an output with lengths of whole sequences", full, "that without lengths", layer(*examples))
    order = torch.arange(len(x)).roll(1)
    found = layer(*(each[order] for each in (*examples, *given)))
    require_close("an output in another order of the batch", found, BEFORE, layer(*examples, *given)[order], 1e-15)


def _require_independence(
    layer: nn.Module, examples: Sequence[Tensor], lengths: Sequence[Tensor | None], ends: Sequence[Tensor]
) -> None:
    """Check that each member of a batch with these lengths, which are ``ends`` or None, is as if it were alone."""
    x = examples[0]
    weight = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape).sin()
    weight = weight.masked_fill(_past(x, ends[0])[..., None], 0)
    together, gradients = output_and_gradients(layer, *examples, lengths=lengths, weight=weight)
    count = len(examples)
    sums = [torch.zeros_like(gradient) for gradient in gradients[count:]]
    for b, sizes in enumerate(zip(*(each.tolist() for each in ends), strict=True)):
        one = [each[b : b + 1, :size] for each, size in zip(examples, sizes, strict=True)]
        alone, own = output_and_gradients(layer, *one, weight=weight[b : b + 1, : sizes[0]])
        require_close("an output in a batch", together[b, : sizes[0]], ALONE, alone[0], 1e-12)
        for side, size, found, expected in zip(SIDES, sizes, gradients, own, strict=False):
            require_close(f"{side} in a batch", found[b, :size], ALONE, expected[0], 1e-12)
        sums = [total + gradient for total, gradient in zip(sums, own[count:], strict=True)]
    names = [f"{name} in a batch" for name, _ in layer.named_parameters()]
    require_close_gradients(names, gradients[count:], "the sum of those", sums, 1e-11)


def check_steps(layer: Any, *examples: Tensor) -> None:
    """Steps equal the whole sequence, and so do their gradients."""
    layer = copy.deepcopy(layer).to(examples[0].dtype)
    x, *memories = (each.detach().requires_grad_() for each in examples)
    for ends in _memory_ends(*examples):
        steps = partial(lambda ends: by_steps(layer, _initial_state(layer, x, memories, ends), x), ends)
        inputs = {"the input": x, **{f"memory {k}": memory for k, memory in enumerate(memories, start=1)}}
        leaves = {**inputs, **dict(layer.named_parameters())}
        require_same_steps(leaves, layer(x, *memories, None, *ends), steps)


def require_same_steps(leaves: Mapping[str, Tensor], whole: Tensor, steps: Callable[[], Tensor]) -> None:
    """Check that outputs of steps are those of the whole sequence, and that so are the gradients of the leaves.

    Args:
        leaves: name -> tensor; the first are the inputs, of which the first has the shape and dtype of the outputs.
        whole: the outputs.
        steps: computes them step by step.

    Raises:
        BrokenContractError: a number differs by more than ``TOLERANCE``, or outputs have another shape or dtype.
    """
    tensors = list(leaves.values())
    x = tensors[0]
    _require_shape("the output of the whole sequence", whole, x)
    tolerance, found = TOLERANCE[x.dtype], steps()
    for what, y in (("the whole sequence", whole), ("a step", found)):
        if y.dtype != x.dtype:
            raise BrokenContractError(f"{what} returns {y.dtype}; expected {x.dtype}")
    require_close("an output of a step", found, WHOLE, whole, tolerance)
    with torch.no_grad():
        require_close("an output of a step without gradients", steps(), WHOLE, whole, tolerance)
    wanted = torch.autograd.grad(whole.square().sum(), tensors, materialize_grads=True)
    given = torch.autograd.grad(found.square().sum(), tensors, materialize_grads=True)
    require_close_gradients([f"{name} through steps" for name in leaves], given, WHOLE, wanted, 10 * tolerance)


def check_steps_in_float32(layer: Any, *examples: Tensor) -> None:
    """Steps equal the whole sequence in float32, too."""
    check_steps(layer, *(each.float() for each in examples))


@torch.no_grad()
def check_states(layer: Any, x: Tensor, *memories: Tensor) -> None:
    """A state is a value: a step, and writes to what it read and returned, leave it; select copies members."""
    chosen = torch.arange(len(x)).repeat_interleave(2).roll(1)
    mixed = torch.cat([x[chosen, :1], x.flip(0)[chosen, 1:]], dim=1)
    for ends in _memory_ends(x, *memories):
        _, state = layer.step(x[:, 0], _initial_state(layer, x, memories, ends))
        first, _ = layer.step(x[:, 1], state)
        layer.step(x[:, 2], state)
        require_equal("a second step from the same state", layer.step(x[:, 1], state)[0], "the first", first)
        for before in (_initial_state(layer, x, memories, ends), state):
            _require_own_storage(layer, before, x)
        one, two = state, state.select(chosen)
        for t in range(1, x.shape[1]):
            y, one = layer.step(x[:, t], one)
            z, two = layer.step(mixed[:, t], two)
        require_close("a branch", y, WHOLE, layer(x, *memories, None, *ends)[:, -1], 1e-12)
        whole = layer(mixed, *_rows(memories, chosen), None, *_rows(ends, chosen))[:, -1]
        require_close("a branch that was selected", z, WHOLE, whole, 1e-12)
        picked, x_t = torch.tensor([3, 1]), x[:2, 2]
        twice, _ = layer.step(x_t, state.select(chosen).select(picked))
        once, _ = layer.step(x_t, state.select(chosen[picked]))
        require_close("a step from a state that was selected twice", twice, "that after one selection", once, 1e-14)


def _require_own_storage(layer: Any, state: Any, x: Tensor) -> None:
    """Check that the state after a step shares no memory with the input and the output of that step."""
    written = x[:, 1].clone()
    output, after = layer.step(written, state)
    expected, _ = layer.step(x[:, 2], after)
    for what, tensor in (("input", written), ("output", output)):
        tensor.fill_(float("nan"))
        found, _ = layer.step(x[:, 2], after)
        case = f"a step after the {what} of the last one was overwritten"
        require_equal(case, found, "that before (a state must clone what it keeps of them)", expected)


def _rows(tensors: Sequence[Tensor | None], rows: Tensor) -> list[Tensor | None]:
    return [None if each is None else each[rows] for each in tensors]


def check_gradients(layer: nn.Module, *examples: Tensor, fast: bool = False) -> None:
    """Gradients agree with finite differences in float64."""
    leaves = [*(each[:2, :3].detach().requires_grad_() for each in examples), *layer.parameters()]
    count, lengths = len(examples), (torch.tensor([3, 2]), torch.tensor([1, 3]))[: len(examples)]
    if not gradcheck(lambda *x: layer(*x[:count], *lengths), leaves, fast_mode=fast, raise_exception=False):
        raise BrokenContractError("a gradient is not that of finite differences in float64")


def check_weights(layer: nn.Module, *examples: Tensor) -> None:
    """Saved and loaded, a layer is the same."""
    other = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(float("nan"))
    other.load_state_dict(load(save(layer.state_dict())))
    require_equal("an output after saving and loading", other(*examples), BEFORE, layer(*examples))


def check_empty(layer: nn.Module, *examples: Tensor) -> None:
    """One position, none, an empty batch and an empty memory, if there is one, work; those of length 0 give zeros."""
    sizes = ((2, 1, 1), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 4, 4), (0, 0, 0))  # of batch, sequence and memory
    for batch, *counts in dict.fromkeys(each[: 1 + len(examples)] for each in sizes):
        parts = [each[:batch, :count] for each, count in zip(examples, counts, strict=True)]
        y, gradients = output_and_gradients(layer, *parts)
        shapes = f"of inputs {' and '.join(str(tuple(part.shape)) for part in parts)}"
        if y.shape != parts[0].shape:
            raise BrokenContractError(f"{shapes}, the output has shape {tuple(y.shape)}")
        if not all(gradient.isfinite().all() for gradient in gradients):
            raise BrokenContractError(f"{shapes}, a gradient is not finite")
        empty = torch.zeros(batch, dtype=torch.int64)
        require_zero("the output of a sequence of length 0", layer(*parts, *[empty] * len(parts)))


def check_explanation(layer: Any, x: Tensor) -> None:
    """Weights of explain, (B, heads, T, sources), are causal, zero at padding and without gradients."""
    record = _checked_explanation(layer, x)
    require_zero("the weight of a later position", record.weights.triu(1 + record.first_source))


def check_cross_explanation(layer: Any, x: Tensor, memory: Tensor) -> None:
    """Weights of explain, (B, heads, T, S), are zero at padding of both sides and without gradients."""
    record = _checked_explanation(layer, x, memory)
    hidden = _past(memory, _lengths(x, memory)[1])
    for name, tensor in {"weights": record.weights.transpose(1, 2), **record.details}.items():
        require_zero(f"the {name} of padding of the memory", tensor.movedim(3, 1)[hidden])


def _checked_explanation(layer: Any, *examples: Tensor) -> Explanation:
    """Return the explanation of padded examples, after the checks of self- and cross-attention."""
    lengths = _lengths(*examples)
    record: Explanation = layer.explain(*examples, *lengths)
    (batch, time), sources = examples[0].shape[:2], examples[-1].shape[1] + record.first_source
    shape = tuple(record.weights.shape)
    if len(shape) != 4 or (shape[0], *shape[2:]) != (batch, time, sources):
        raise BrokenContractError(f"weights have shape {shape}; expected ({batch}, heads, {time}, {sources})")
    past = _past(examples[0], lengths[0])
    for name, tensor in {"weights": record.weights.transpose(1, 2), **record.details}.items():
        if tensor.requires_grad:
            raise BrokenContractError(f"{name} have gradients")
        require_zero(f"the {name} at padding", tensor[past])
    return record


CHECKS: Final[Mapping[str, Callable[..., None]]] = MappingProxyType(
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
"""Of self-attention, called with a layer and x."""
CROSS_CHECKS: Final[Mapping[str, Callable[..., None]]] = MappingProxyType(
    {name: check for name, check in CHECKS.items() if name not in ("causal", "explanation")}
    | {"positions": check_cross_positions, "explanation": check_cross_explanation}
)
"""Of cross-attention, called with a layer, x and a memory."""


def by_steps(layer: Any, state: Any, x: Tensor) -> Tensor:
    """Return the outputs (B, T, d_model) of a layer step by step."""
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1)


def output_and_gradients(
    layer: nn.Module, *examples: Tensor, lengths: Sequence[Tensor | None] = (), weight: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the output, and the gradients of the examples and of all parameters for a cotangent."""
    leaves = [each.detach().requires_grad_() for each in examples]
    y = layer(*leaves, *lengths)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape).sin() if weight is None else weight
    return y.detach(), torch.autograd.grad(y, [*leaves, *layer.parameters()], weight, materialize_grads=True)


def _initial_state(layer: Any, x: Tensor, memories: Sequence[Tensor], ends: Sequence[Tensor | None]) -> Any:
    return layer.initial_state(*memories, *ends) if memories else layer.initial_state(len(x))


def _lengths(x: Tensor, *memories: Tensor) -> tuple[Tensor, ...]:
    """Return lengths of which one is that of the examples, and one of x is 0."""
    order = torch.arange(len(x))
    of_x = order.flip(0) * x.shape[1] // max(1, len(x) - 1)
    return of_x, *((order + 1) * memory.shape[1] // len(x) for memory in memories)


def _memory_ends(x: Tensor, *memories: Tensor) -> tuple[tuple[Tensor | None, ...], ...]:
    """Return the memory lengths of calls: none, and some; no lengths without a memory."""
    return ((None,), _lengths(x, *memories)[1:]) if memories else ((),)


def _past(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(x.shape[1]) >= lengths[:, None]
