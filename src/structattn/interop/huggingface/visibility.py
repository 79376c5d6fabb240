"""Arguments of transformers' attention interface: masks, grouped heads, and options."""

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers.masking_utils import sdpa_mask
from transformers.utils import output_capturing


def visible_mask(
    *args: Any, allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, **kwargs: Any
) -> Tensor:
    """Return the boolean mask (B, 1, T, S) of sdpa, true for visible keys, without its shortcut of None."""
    mask: Tensor = sdpa_mask(*args, allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **kwargs)
    return mask


def visible_keys(
    module: nn.Module, mask: Tensor | None, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "#batch #heads queries keys"]:
    """Return which keys are visible to which queries, from a boolean or an additive mask.

    Args:
        module: the calling attention module.
        mask: true for visible keys, or added to scores, with very low values for hidden keys; (B, 1 or H, T, S or
            more). If None, all keys are visible, except later ones if the module is causal.
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
    """Return whether an attention module is causal: True by default, as in transformers."""
    return bool(getattr(module, "is_causal", True))


def reject_arguments(mechanism: str, arguments: dict[str, Any], *names: str) -> None:
    """Reject arguments that would change the result and are not supported.

    Raises:
        ValueError: one of ``names`` is given.
    """
    for name in names:
        if arguments.get(name) is not None:
            raise ValueError(f"{mechanism} attention does not support {name!r}, which this model uses")


def outputs_attentions(arguments: dict[str, Any]) -> bool:
    """Return whether the model was called with ``output_attentions=True``.

    Current models remove that argument before they call their layers, and collect the weights by hooks; a private
    variable of transformers lists what is collected. If it does not exist, weights are always computed.
    """
    if "output_attentions" in arguments:
        return bool(arguments["output_attentions"])
    collector = getattr(output_capturing, "_active_collector", None)
    collected = None if collector is None else collector.get()
    return collected is None or any("attentions" in key for key in collected)


def repeat_kv(shared: Tensor, query: Tensor) -> Tensor:
    """Repeat grouped keys or values (B, K, S, d) for the query heads (B, H, S, d). K must divide H."""
    times = query.shape[1] // shared.shape[1]
    return shared if times == 1 else shared.repeat_interleave(times, dim=1)
