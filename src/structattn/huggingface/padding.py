"""Padding that may stand anywhere, for layers that want it at the end."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Padding:
    """Which positions of a batch are real, and how to bring those to the front.

    Args:
        real: (B, T).
        order: (B, T), for each row first its real positions, then the others, both in their order.
        lengths: (B,), how many are real.
    """

    real: Bool[Tensor, "batch time"]
    order: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]

    def to_front(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
        """The real positions first, padding behind them."""
        return x.take_along_dim(self.order[..., None].to(x.device), dim=1)

    def back(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
        """What ``to_front`` has moved to where it was."""
        return x.take_along_dim(self.order.argsort(dim=1)[..., None].to(x.device), dim=1)


def padding_of(mask: Tensor, time: int) -> Padding | None:
    """The padding among the last ``time`` positions of an attention mask; None where there is seen to be none.

    Args:
        mask: (B, S) with S at least ``time``: not 0 for real positions, as tokenizers make it.
        time: T, how many positions the model is given, after those in its cache.

    Raises:
        ValueError: the mask has more than two axes, or too few positions.
    """
    if mask.ndim > 3:
        raise ValueError(
            f"attention_mask has {mask.ndim} axes; a stack must know which positions are padding, which takes a mask "
            "(batch, time), and a cache that grows (a static cache makes other masks)"
        )
    if mask.shape[-1] < time:
        raise ValueError(f"attention_mask has {mask.shape[-1]} positions; expected at least {time}")
    real = mask.reshape(-1, mask.shape[-1])[:, mask.shape[-1] - time :] != 0
    if not torch.compiler.is_compiling() and bool(real.all()):
        return None
    return Padding(real, torch.argsort(~real, dim=1, stable=True), real.sum(1))


def refuse_packed(position_ids: Tensor | None) -> None:
    """Several sequences in one row share no stack, and nothing here divides them.

    Raises:
        ValueError: positions do not go up by one from column to column.
    """
    if position_ids is not None and bool((position_ids.diff(dim=-1) != 1).any()):
        raise ValueError(
            "position_ids do not go up by one, and there is no attention_mask: rows that hold several packed sequences "
            "are not supported with stacks"
        )


def padding_given(
    mask: Tensor | None, position_ids: Tensor | None, input_ids: Tensor | None, inputs_embeds: Tensor | None
) -> Padding | None:
    """The padding of what a model is given, by the arguments of its ``forward``; None where there is none.

    Raises:
        ValueError: the mask is none that a stack can use, or rows are packed.
    """
    if mask is None:
        refuse_packed(position_ids)
    elif input_ids is not None:
        return padding_of(mask, input_ids.shape[-1])
    elif inputs_embeds is not None:
        return padding_of(mask, inputs_embeds.shape[-2])
    return None
