"""Checks of arguments, the dtype of computation, and masks for lengths, shared by all operators."""

import torch
from torch import Tensor

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


def computing_precision(**tensors: Tensor) -> tuple[list[Tensor], torch.dtype]:
    """Return the tensors in float32 or better, and the dtype of the result.

    Under autocast, float16 and bfloat16 become float32 and the result stays in float32, as for the operators that
    torch keeps in float32 (softmax, cumsum, ...). Otherwise all tensors must have one dtype; float16 and bfloat16 are
    computed in float32, and the result has the caller's dtype.

    Raises:
        ValueError: a tensor is not floating-point, or they differ in dtype or device.
    """
    first = next(iter(tensors.values()))
    if torch.is_autocast_enabled(first.device.type):
        raised = {name: tensor.float() if tensor.dtype in _LOW else tensor for name, tensor in tensors.items()}
        require_alike(**raised)
        return list(raised.values()), next(iter(raised.values())).dtype
    require_alike(**tensors)
    if first.dtype in _LOW:
        return [tensor.float() for tensor in tensors.values()], first.dtype
    return list(tensors.values()), first.dtype


def require_row_indices(row_indices: Tensor, batch: int | None = None) -> None:
    """Raise ValueError unless ``row_indices`` is (B, S) int64."""
    require_shape("row_indices", row_indices, (batch, None), "(B, S)")
    if row_indices.dtype != torch.int64:
        raise ValueError(f"row_indices has dtype {row_indices.dtype}; expected torch.int64")


def checked_lengths(lengths: Tensor | None, batch: int, time: int, device: torch.device) -> Tensor:
    """Return the lengths as (B,) int64 on ``device``; None means ``time`` for every sequence.

    Raises:
        ValueError: wrong shape, not integers, or outside 0..T.
    """
    if lengths is None:
        return torch.full((batch,), time, dtype=torch.int64, device=device)
    require_shape("lengths", lengths, (batch,), "(B,)")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths has dtype {lengths.dtype}; expected integers")
    if not torch.compiler.is_compiling() and batch and (int(lengths.min()) < 0 or int(lengths.max()) > time):
        raise ValueError(f"lengths range from {int(lengths.min())} to {int(lengths.max())}; expected 0 to {time}")
    return lengths.to(device=device, dtype=torch.int64)


def checked_two_lengths(
    lengths: Tensor | None, memory_lengths: Tensor | None, batch: int, queries: int, keys: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the lengths of queries and of keys, each (B,) int64; ``lengths`` alone holds for both.

    Raises:
        ValueError: wrong shape, not integers, out of range; or ``lengths`` alone where T differs from S.
    """
    if memory_lengths is None and lengths is not None:
        if queries != keys:
            raise ValueError(
                f"lengths without memory_lengths apply to queries and keys, but there are {queries} queries and {keys} "
                "keys; give memory_lengths too"
            )
        memory_lengths = lengths
    return checked_lengths(lengths, batch, queries, device), checked_lengths(memory_lengths, batch, keys, device)


def inside(lengths: Tensor, time: int) -> Tensor:
    """Return the mask (B, T) that is true at positions before each sequence's end."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def mask_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Set ``x`` (B, T, d) to zero from each length on, NaN included; its gradient is zero there, too."""
    if lengths is None:
        return x
    return torch.where(inside(lengths.to(x.device), x.shape[1])[..., None], x, 0)


def full_memory_lengths(lengths: Tensor | None, memory_lengths: Tensor | None, source: int) -> Tensor | None:
    """Return memory lengths for the operators, which take those of queries for both: S where only queries have any."""
    if lengths is None or memory_lengths is not None:
        return memory_lengths
    return torch.full_like(lengths, source)
