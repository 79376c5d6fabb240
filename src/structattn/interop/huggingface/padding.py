"""Padding at any positions, for layers that need it at the end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from structattn.support.shapes import Bool, Int, Shaped


@dataclass(frozen=True)
class Padding:
    """The positions of a batch that are not padding, and the permutation that moves them to the front.

    Args:
        real: (B, T), False for padding.
        order: (B, T), the real positions of each row, then the others, both in their original order.
        lengths: (B,), number of real positions.
    """

    real: Bool[Tensor, "batch time"]
    order: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]

    def to_front(self, x: Shaped[Tensor, "batch time ..."]) -> Shaped[Tensor, "batch time ..."]:
        """Move the real positions of ids or vectors to the front."""
        return _in_order(x, self.order)

    def restore(self, x: Shaped[Tensor, "batch time ..."]) -> Shaped[Tensor, "batch time ..."]:
        """Undo ``to_front``."""
        return _in_order(x, self.order.argsort(dim=1))

    def repeat_latest(self, x: Shaped[Tensor, "batch time ..."]) -> Shaped[Tensor, "batch time ..."]:
        """Repeat what belongs to each real position at the padding after it."""
        positions = torch.arange(self.real.shape[1], device=self.real.device)
        return _in_order(x, torch.where(self.real, positions, 0).cummax(dim=1).values)

    def first(self, time: int) -> "Padding | None":
        """Return the padding among the first positions; None if there is none."""
        return padding_of(self.real[:, :time], time)


def _in_order(x: Tensor, order: Tensor) -> Tensor:
    return x.take_along_dim(order.to(x.device).view(*order.shape, *(1,) * (x.ndim - 2)), dim=1)


def in_front(x: Tensor, padding: Padding | None) -> tuple[Tensor, Tensor | None]:
    """Return ids or vectors with padding at the end, and the lengths; None: there is no padding."""
    return (x, None) if padding is None else (padding.to_front(x), padding.lengths.to(x.device))


def process_sequences(function: Callable[..., Any], x: Tensor, padding: Padding | None) -> Tensor:
    """Apply a function of sequences and lengths, whose padding is at the end, to ids or vectors with padding anywhere.

    Its outputs at padding stay what they are: zeros, of a layer.
    """
    outputs: Tensor = function(*in_front(x, padding))
    return outputs if padding is None else padding.restore(outputs)


def padding_of(mask: Tensor | None, time: int) -> Padding | None:
    """Return the padding among the last ``time`` positions of an attention mask; None if there is none.

    Args:
        mask: (B, S) or (B, 1, S) with S at least ``time``, 0 for padding, as tokenizers return it; None: no padding.
        time: T, number of input positions, after those in the cache.

    Raises:
        ValueError: the mask has other axes, or too few positions.
    """
    if mask is None:
        return None
    if mask.ndim > 3 or (mask.ndim == 3 and mask.shape[1] != 1):
        raise ValueError(
            f"attention_mask has shape {tuple(mask.shape)}; a model with stacks needs a mask (batch, time) and a "
            "dynamic cache (a static cache makes other masks)"
        )
    if mask.shape[-1] < time:
        raise ValueError(f"attention_mask has {mask.shape[-1]} positions; expected at least {time}")
    real = mask.reshape(-1, mask.shape[-1])[:, mask.shape[-1] - time :] != 0
    if not torch.compiler.is_compiling() and not real.is_meta and bool(real.all()):
        return None
    return Padding(real, torch.argsort(~real, dim=1, stable=True), real.sum(1))


def padding_from_arguments(
    mask: Tensor | None, position_ids: Tensor | None, input_ids: Tensor | None, inputs_embeds: Tensor | None
) -> Padding | None:
    """Return the padding of the inputs of ``forward``; None if there is none.

    Raises:
        ValueError: the mask is not supported, or rows hold several packed sequences, which would need separate stacks.
    """
    if mask is None:
        if position_ids is not None and bool((position_ids.diff(dim=-1) != 1).any()):
            raise ValueError(
                "position_ids do not increase by one, and there is no attention_mask: rows of several packed sequences "
                "are not supported with stacks"
            )
    elif input_ids is not None:
        return padding_of(mask, input_ids.shape[-1])
    elif inputs_embeds is not None:
        return padding_of(mask, inputs_embeds.shape[-2])
    return None
