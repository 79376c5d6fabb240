"""Which key each query may see, as our attention functions want to know it from transformers."""

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers.masking_utils import sdpa_mask
from transformers.utils import output_capturing


def visible_mask(
    *args: Any, allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, **kwargs: Any
) -> Tensor:
    """The mask (B, 1, T, S) that transformers makes for sdpa, true where a query sees a key, and never left out."""
    mask: Tensor = sdpa_mask(*args, allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **kwargs)
    return mask


def visible_keys(
    module: nn.Module, mask: Tensor | None, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "#batch #heads queries keys"]:
    """Where a query sees a key, by a mask of either kind that transformers knows.

    Args:
        module: the attention module that calls.
        mask: true where visible, or numbers to be added to scores, of which the lowest hide; (B, 1 or H, T, S or more).
            Where it is None, the last query sees all keys, and earlier ones fewer if the module is causal.
        queries: T.
        keys: S.
        device: of the result.
    """
    if mask is None:
        visible = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
        return visible.tril(keys - queries) if is_causal(module) else visible
    mask = mask[..., :keys]
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def is_causal(module: nn.Module) -> bool:
    """Whether an attention module looks back only; taken for granted where it does not say, as transformers does."""
    return bool(getattr(module, "is_causal", True))


def refuse(mechanism: str, arguments: dict[str, Any], *names: str) -> None:
    """Arguments that change what attention computes cannot be passed over.

    Raises:
        ValueError: one of ``names`` is given.
    """
    for name in names:
        if arguments.get(name) is not None:
            raise ValueError(f"{mechanism} attention does not support {name!r}, which this model uses")


def weights_are_wanted(arguments: dict[str, Any]) -> bool:
    """Whether the model was called with ``output_attentions=True``.

    Models of today take that argument off before they call their layers and let hooks collect the weights; what they
    collect is told by a variable of transformers' own. Where that cannot be found, weights are always made.
    """
    if "output_attentions" in arguments:
        return bool(arguments["output_attentions"])
    collector = getattr(output_capturing, "_active_collector", None)
    collected = None if collector is None else collector.get()
    return collected is None or any("attentions" in key for key in collected)
