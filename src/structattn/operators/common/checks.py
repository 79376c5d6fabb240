"""Checks of arguments, the dtype of computation, and masks for lengths, shared by all operators."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.registration import register
from structattn.support.sizes import require_positive

_LOW = (torch.float16, torch.bfloat16)


def require_shape(name: str, tensor: Tensor, shape: tuple[int | None, ...], letters: str) -> None:
    """Raise ValueError unless ``tensor`` has ``shape``; None matches any size, ``letters`` names the axes."""
    fits = tensor.dim() == len(shape) and all(
        want is None or want == have for want, have in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        wanted = tuple("any" if size is None else size for size in shape)
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {letters} = {wanted}")


def require_alike(**tensors: Tensor) -> None:
    """Raise ValueError unless all tensors have the same floating dtype and device."""
    (first_name, first), *others = tensors.items()
    if not first.is_floating_point():
        raise ValueError(f"{first_name} has dtype {first.dtype}; expected a floating-point dtype")
    for name, tensor in others:
        if tensor.dtype != first.dtype or tensor.device != first.device:
            raise ValueError(
                f"{name} is {tensor.dtype} on {tensor.device}; expected {first.dtype} on {first.device} as {first_name}"
            )


def is_autocast(device: torch.device) -> bool:
    """Return whether autocast is on for a device; the meta device has none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which autocast is off for a device."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def computing_precision(**tensors: Tensor) -> tuple[list[Tensor], torch.dtype]:
    """Return the tensors in float32 or better, and the dtype of the result.

    Under autocast, float16 and bfloat16 become float32 and the result stays in float32, as for the operators that
    torch keeps in float32 (softmax, cumsum, ...). Otherwise all tensors must have one dtype; float16 and bfloat16 are
    computed in float32, and the result has the caller's dtype.

    Raises:
        ValueError: a tensor is not floating-point, or they differ in dtype or device.
    """
    first = next(iter(tensors.values()))
    if is_autocast(first.device):
        raised = {name: tensor.float() if tensor.dtype in _LOW else tensor for name, tensor in tensors.items()}
        require_alike(**raised)
        return list(raised.values()), next(iter(raised.values())).dtype
    require_alike(**tensors)
    if first.dtype in _LOW:
        return [tensor.float() for tensor in tensors.values()], first.dtype
    return list(tensors.values()), first.dtype


def require_row_indices(row_indices: Tensor) -> None:
    """Raise ValueError unless ``row_indices`` is (B, S) int64."""
    require_shape("row_indices", row_indices, (None, None), "(B, S)")
    if row_indices.dtype != torch.int64:
        raise ValueError(f"row_indices has dtype {row_indices.dtype}; expected torch.int64")


def _empty_integers(integers: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(integers, dtype=torch.int64)


@register("checked_range", devices="default", fake=_empty_integers)
def checked_range(integers: Tensor, least: int, most: int, name: str) -> Tensor:
    """Return the integers as int64. An operator, so that compiled, exported and mapped functions check them, too.

    On a GPU this waits for the device; while a CUDA graph is captured, where waiting is impossible, nothing is checked.

    Raises:
        ValueError: one is outside of ``least`` to ``most``; ``name`` is for the message.
    """
    result = integers.to(torch.int64, copy=True)  # an operator must not return its argument
    if result.numel() == 0 or (result.is_cuda and torch.cuda.is_current_stream_capturing()):
        return result
    low, high = (int(extreme) for extreme in result.aminmax())
    if low < least or high > most:
        raise ValueError(f"{name} range from {low} to {high}; expected {least} to {most}")
    return result


def require_lengths(lengths: object, batch: int, name: str = "lengths") -> None:
    """Raise ValueError unless ``lengths`` is a tensor of integers (B,): a mask, for instance, or a list."""
    found = f"a {type(lengths).__name__}"
    if isinstance(lengths, Tensor):
        is_integer = not (lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool)
        if is_integer and lengths.shape == (batch,):
            return
        found = f"{lengths.dtype} {tuple(lengths.shape)}"
    raise ValueError(f"{name}: integers (B,) = ({batch},), found {found}")


def integer_lengths(lengths: Tensor | None, batch: int, device: torch.device, name: str = "lengths") -> Tensor | None:
    """Return the lengths as (B,) int64 on ``device``, or None; their range is checked by the compiled kernels.

    Raises:
        ValueError: wrong shape, or not integers.
    """
    if lengths is None:
        return None
    require_lengths(lengths, batch, name)
    return lengths.to(device=device, dtype=torch.int64)


def _empty_mask(mask: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(mask)


@register("checked_false", devices="default", fake=_empty_mask)
def checked_false(mask: Tensor, message: str) -> Tensor:
    """Return the negation of a mask, which is false everywhere. An operator for the same reason as ``checked_range``.

    Args:
        mask: bool, of any shape.
        message: of the error.

    Raises:
        ValueError: the mask is true somewhere; while a CUDA graph is captured, it is not checked.
    """
    if not (mask.is_cuda and torch.cuda.is_current_stream_capturing()) and bool(mask.any()):
        raise ValueError(message)
    return ~mask


def checked_lengths(
    lengths: Tensor | None, batch: int, time: int, device: torch.device, name: str = "lengths"
) -> Tensor:
    """Return the lengths as (B,) int64 on ``device``; None means ``time`` for every sequence.

    Raises:
        ValueError: wrong shape, not integers, or outside 0..T.
    """
    integers = integer_lengths(lengths, batch, device, name)
    if integers is None:
        return torch.full((batch,), time, dtype=torch.int64, device=device)
    return checked_range(integers, 0, time, name)


def checked_two_lengths(
    lengths: Tensor | None, memory_lengths: Tensor | None, batch: int, queries: int, keys: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the lengths of queries and of keys, each (B,) int64; ``lengths`` alone holds for both, as one tensor.

    Raises:
        ValueError: wrong shape, not integers, out of range; or ``lengths`` alone where T differs from S.
    """
    ends = checked_lengths(lengths, batch, queries, device)
    if memory_lengths is not None or lengths is None:
        return ends, checked_lengths(memory_lengths, batch, keys, device, "memory_lengths")
    if queries != keys:
        raise ValueError(
            f"lengths without memory_lengths apply to queries and keys, but there are {queries} queries and {keys} "
            "keys; give memory_lengths too"
        )
    return ends, ends


def inside(lengths: Tensor, time: int) -> Tensor:
    """Return the mask (B, T) that is true at positions before each sequence's end."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def mask_padding(x: Tensor, lengths: Tensor | None, name: str = "lengths") -> Tensor:
    """Set ``x`` (B, T, d) to zero from each length on, NaN included; its gradient is zero there, too.

    Raises:
        ValueError: ``x`` has not three dimensions, or ``lengths``, called ``name``, are not integers (B,).
    """
    if x.dim() != 3:
        raise ValueError(f"the input has shape {tuple(x.shape)}; expected (B, T, d)")
    if lengths is None:
        return x
    require_lengths(lengths, x.shape[0], name)
    return torch.where(inside(lengths.to(x.device), x.shape[1])[..., None], x, 0)


def full_memory_lengths(
    x: Tensor, memory: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
) -> Tensor | None:
    """Return memory lengths for the operators, which take those of queries for both: S where only queries have any.

    Args:
        x: the input, (B, T, d), or its queries, (B, H, T, D).
        memory: (B, S, d), or its keys, (B, H, S, D).
        lengths: of the input.
        memory_lengths: of the memory.

    Raises:
        ValueError: the memory has another batch size.
    """
    if memory.shape[0] != x.shape[0]:
        raise ValueError(f"the memory has batch size {memory.shape[0]}; expected {x.shape[0]}, the input's")
    if lengths is None or memory_lengths is not None:
        return memory_lengths
    return torch.full_like(lengths, memory.shape[-2], dtype=torch.int64)


def head_size(size: int, num_heads: int, name: str = "d_model") -> int:
    """Return the size of one of H heads.

    Raises:
        ValueError: H does not divide the size, called ``name``, or the size is 0.
    """
    require_positive(**{name: size})
    if num_heads < 1 or size % num_heads:
        raise ValueError(f"{num_heads} heads do not divide {name}={size}")
    return size // num_heads


def wrong_width(x: Tensor, d_model: int) -> ValueError:
    """Return the error for an input whose last dimension is not d."""
    *others, width = x.shape
    expected = ", ".join(map(str, [*others, d_model]))
    return ValueError(f"the input has shape {tuple(x.shape)}; expected ({expected}): d_model is {d_model}, not {width}")


def wrong_batch(x_t: Tensor, state: Tensor) -> ValueError:
    """Return the error for a step whose batch, the first axis, is not that of the state."""
    return ValueError(f"the step has batch size {len(x_t)}; expected {len(state)}, the state's")
