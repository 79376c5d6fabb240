"""Arguments of the nondeterministic stack, checked and converted to one dtype, and the state between two steps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_range, integer_lengths, is_autocast, require_alike, require_shape
from structattn.support.shapes import Float, Int

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class Arguments(NamedTuple):
    """Contiguous tensors of float32 or float64; without values, the weights over positions are computed."""

    push: Tensor  # (B, T, Q, S, Q, S)
    replace: Tensor  # (B, T, Q, S, Q, S)
    pop: Tensor  # (B, T, Q, S, Q)
    values: Tensor | None  # (B, T, m)
    bottom: Tensor | None  # (m,)
    lengths: Tensor  # (B,) int64; the compiled kernels check their range
    window: int | None

    def in_range(self) -> "Arguments":
        """Return the same arguments; ValueError if a length is outside 0..T."""
        return self._replace(lengths=checked_range(self.lengths, 0, self.push.shape[1], "lengths"))


def checked_arguments(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor | None,
    window: int | None = None,
) -> Arguments:
    """Check shapes, dtypes and window; half precisions become float32.

    Raises:
        ValueError: shapes, dtypes or the window do not fit.
    """
    given = {"push": push, "replace": replace, "pop": pop}
    if values is not None and bottom is not None:
        given |= {"values": values, "bottom": bottom}
    if is_autocast(push.device):
        # Projections under autocast may give half and full precision side by side: all become what the widest is.
        widest = max((x.dtype for x in given.values()), key=lambda dtype: torch.finfo(dtype).bits)
        given = {name: x.to(widest) for name, x in given.items()}
    require_alike(**given)
    _require_shapes(push, replace, pop, values, bottom)
    compute = torch.promote_types(given["push"].dtype, torch.float32)
    ready = {name: x.to(compute).contiguous() for name, x in given.items()}
    steps = integer_lengths(lengths, push.shape[0], push.device)
    if steps is None:
        steps = torch.full(push.shape[:1], push.shape[1], dtype=torch.int64, device=push.device)
    logits = ready["push"], ready["replace"], ready["pop"]
    return Arguments(*logits, ready.get("values"), ready.get("bottom"), steps, checked_window(window))


def checked_window(window: int | None) -> int | None:
    """Return the window.

    Raises:
        ValueError: it is less than 1, or not whole.
    """
    if window is not None and not (window >= 1 and window % 1 == 0):
        raise ValueError(f"window={window}; expected a whole number of at least 1, or None for no limit")
    return window


def split_logits(logits: Tensor, states: int, symbols: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split logits (..., A), for each (q, x) push (r, y), replace (r, y), pop (r), into those of each action.

    Returns:
        Push and replace (..., Q, S, Q, S) and pop (..., Q, S, Q).
    """
    targets, sizes = states * symbols, (states, symbols)
    rows = logits.view(*logits.shape[:-1], *sizes, 2 * targets + states)
    push, replace, pop = rows.split_with_sizes([targets, targets, states], dim=-1)
    shape = (*rows.shape[:-1], *sizes)
    return push.view(shape), replace.view(shape), pop


def in_rows(x: Tensor) -> Tensor:
    """Return logits (B, Q, S, ...) whose axes after S are contiguous, with one stride for Q and S, copied if needed."""
    inner = 1
    for size, stride in zip(x.shape[:2:-1], x.stride()[:2:-1], strict=True):
        if stride != inner and size > 1:
            return _copied(x)
        inner *= size
    return x if x.stride(1) == x.shape[2] * x.stride(2) else _copied(x)


def _copied(x: Tensor) -> Tensor:
    """Return a copy with the strides of a new tensor: ``contiguous`` keeps those of axes of size 1."""
    return x.new_empty(x.shape).copy_(x)


def _require_shapes(push: Tensor, replace: Tensor, pop: Tensor, values: Tensor | None, bottom: Tensor | None) -> None:
    require_shape("push", push, (None,) * 6, "(B, T, Q, S, Q, S)")
    B, T, Q, S = push.shape[:4]
    if Q < 1 or S < 1:
        raise ValueError(f"push has {Q} states and {S} symbols; expected at least one of each")
    require_shape("push", push, (B, T, Q, S, Q, S), "(B, T, Q, S, Q, S)")
    require_shape("replace", replace, (B, T, Q, S, Q, S), "(B, T, Q, S, Q, S)")
    require_shape("pop", pop, (B, T, Q, S, Q), "(B, T, Q, S, Q)")
    if values is not None and bottom is not None:
        require_shape("values", values, (B, T, None), "(B, T, m)")
        require_shape("bottom", bottom, (values.shape[2],), "(m,)")


def empty_gradients(push: Tensor, replace: Tensor, pop: Tensor, values: Tensor | None, *_: Any) -> Gradients:
    """Allocate the gradients of push, replace, pop, values and, for each sequence, bottom."""
    grad_values = push.new_empty(push.shape[0], 0, 0) if values is None else values.new_empty(values.shape)
    grad_bottom = push.new_empty(push.shape[0], 0 if values is None else values.shape[2])
    return (
        push.new_empty(push.shape),
        replace.new_empty(replace.shape),
        pop.new_empty(pop.shape),
        grad_values,
        grad_bottom,
    )


def given_cotangents(
    push: Tensor, values: Tensor | None, grad_readings: Tensor | None, grad_log_weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of readings and log-weights, contiguous, with zeros for one that autograd did not give.

    The operators save with ``set_materialize_grads(False)``: autograd would also fill a gradient of the tables, as many
    zeros as the tables have numbers.
    """
    B, T, Q, S = push.shape[:4]
    if grad_readings is None:
        grad_readings = push.new_zeros(B, T, Q, S, T + 1 if values is None else values.shape[2])
    if grad_log_weight is None:
        grad_log_weight = push.new_zeros(B, T)
    return grad_readings.contiguous(), grad_log_weight.contiguous()


@dataclass(eq=False)
class NondeterministicStackState(ABC):
    """The stack after some steps: an immutable value, through which gradients flow.

    Attributes:
        reading: of the last step. Before the first it is the bottom vector for state 0 and symbol 0, and zeros.
    """

    reading: Float[Tensor, "batch state symbol vector"]

    @abstractmethod
    def select(self, indices: Int[Tensor, " chosen"]) -> "NondeterministicStackState":
        """Select and reorder members of the batch, with repetition. Cost: O(t²) copies; on a GPU O(t)."""

    @abstractmethod
    def detach(self) -> "NondeterministicStackState":
        """Return the same state without its gradient history."""

    @abstractmethod
    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "NondeterministicStackState":
        """Return the state after one more step; this one is unchanged.

        Args:
            logits: push and replace (B, Q, S, Q, S) and pop (B, Q, S, Q), float32 or float64.
            value: (B, m), of the same dtype.
        """
