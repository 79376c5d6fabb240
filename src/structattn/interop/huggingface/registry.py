"""Gaussian and hard attention for transformers' registry of attention functions."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.masking_utils import sdpa_mask
from transformers.utils import output_capturing

from structattn.operators import gaussian_weights, hard_attention
from structattn.operators.gaussian_attention import Gaussians, Kernel
from structattn.support.shapes import Bool


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


def hard_heads(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    *,
    temperature: float,
    straight_through: bool,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return what each query selects (B, T, H, d), and the weights (B, H, T, S) on request; see ``register_hard``.

    Args:
        module: the calling attention module.
        query: (B, H, T, d).
        key: (B, K, S, d), with K a divisor of H.
        value: as ``key``.
        attention_mask: see ``visible_keys``; a floating-point mask is added to the scores.
        scaling: factor of the scores; None: d ** -0.5.
        position_bias: added to the scores.
        temperature: of the samples in training.
        straight_through: whether these are one-hot.
        **kwargs: other arguments of transformers.

    Raises:
        ValueError: the model uses an argument that is not supported.
    """
    reject_arguments("hard", kwargs, "softcap", "s_aux", "cache")
    key, value = (repeat_kv(shared, query.shape[1] // shared.shape[1]) for shared in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    for bias in (attention_mask, position_bias):
        scores = scores if bias is None or bias.dtype == torch.bool else scores + bias[..., : key.shape[2]]
    visible = visible_keys(module, attention_mask, query.shape[2], key.shape[2], scores.device)
    attend: Callable[..., tuple[Tensor, ...]] = hard_attention
    outputs, _, *weights = attend(
        scores.masked_fill(~visible, -torch.inf),
        value,
        temperature,
        sample=module.training,
        straight_through=straight_through,
        return_weights=outputs_attentions(kwargs),
    )
    return outputs.transpose(1, 2).contiguous(), weights[0] if weights else None


CAUSAL_OFFSETS, OTHER_OFFSETS = (-1, 0), (-1, 1)


def gaussian_heads(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    offsets: Sequence[float] | None,
    gaussians: Mapping[str, Any],
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return the outputs (B, T, H, d), and the weights (B, H, T, S) on request; see ``register_gaussian``.

    Arguments are as for ``hard_heads``; of the queries only the shape is used. ``gaussians`` are sigma, kernel and
    window.

    Raises:
        ValueError: the module is cross-attention.
    """
    reject_arguments("gaussian", kwargs, "cache")
    reject_cross_attention(module, query.shape[2], value.shape[2])
    visible = visible_keys(module, attention_mask, query.shape[2], value.shape[2], value.device)
    offsets = offsets or (CAUSAL_OFFSETS if is_causal(module) else OTHER_OFFSETS)
    each_head = [offsets[head % len(offsets)] for head in range(query.shape[1])]
    weights = gaussian_weights(
        each_head, *visible.shape[2:], **gaussians, first=first_query(visible), device=visible.device
    )
    same_for_all = visible.stride(0) == 0  # one mask, expanded to the batch
    weights = torch.where(visible[:1] if same_for_all else visible, weights, 0).to(value.dtype)
    outputs = weights @ repeat_kv(value, query.shape[1] // value.shape[1])
    weights = weights.expand(query.shape[0], -1, -1, -1)
    return outputs.transpose(1, 2).contiguous(), weights if outputs_attentions(kwargs) else None


def first_query(visible: Tensor) -> int:
    """Return the position of the first query among the keys.

    It is 0 if there are as many queries as keys. Otherwise earlier keys come from a cache and attention is causal, so
    the last visible key of a query is its own, except for padding, which sees fewer. This holds for static caches, too.
    """
    queries, keys = visible.shape[2:]
    if queries == keys:
        return 0
    last = torch.where(visible, torch.arange(keys, device=visible.device), -1).amax(-1)
    first = last - torch.arange(queries, device=visible.device)
    return max(0, int(first.max()))


def reject_cross_attention(module: nn.Module, queries: int, keys: int) -> None:
    """Reject cross-attention, whose queries and keys have no common positions.

    Raises:
        ValueError: the module is cross-attention by its attributes, or bidirectional with unequal lengths.
    """
    cross = getattr(module, "is_cross_attention", False) or "CrossAttention" in type(module).__name__
    if cross or (not is_causal(module) and queries != keys):
        raise ValueError(
            f"{type(module).__name__} is cross-attention ({queries} queries, {keys} keys); gaussian attention supports "
            "self-attention only"
        )


def register_attention() -> None:
    """Register "structattn_gaussian" and "structattn_hard", each with its defaults."""
    register_gaussian("structattn_gaussian")
    register_hard("structattn_hard")


def register_gaussian(
    name: str,
    offsets: Sequence[float] | None = None,
    *,
    sigma: float = 1.0,
    kernel: Kernel = "full",
    window: int = 3,
) -> None:
    """Register hard-coded Gaussian attention (You et al. 2020, section 3.1) for ``attn_implementation=name``.

    Weights are those of equation 2, unnormalised, and zero for masked keys. Queries and keys are unused, so that their
    projections get no gradient. The model's attention dropout is ignored. It replaces self-attention, causal or not,
    with or without a cache; cross-attention raises an error.

    Args:
        name: without "/", which transformers reserves.
        offsets: centres relative to the query, repeated for all heads; None: the paper's, -1 and 0 for causal
            attention, -1 and 1 otherwise.
        sigma: the standard deviation, in positions.
        kernel: "full", every key; "window", only the ``window`` keys around the centre; "index", the centre alone, with
            weight 1.
        window: odd number of keys for the kernel "window".

    Raises:
        ValueError: an argument is invalid.
    """
    gaussians: dict[str, Any] = {"sigma": sigma, "kernel": kernel, "window": window}
    Gaussians(tuple(offsets or ()), **gaussians)  # validates the arguments
    _register(name, partial(gaussian_heads, offsets=offsets and tuple(offsets), gaussians=gaussians))


def register_hard(name: str, *, temperature: float = 1.0, straight_through: bool = False) -> None:
    """Register attention in which each query selects one value, for ``attn_implementation=name``.

    The selection is a Gumbel-softmax sample in training mode and the largest score in evaluation mode (the Discrete
    Transformer paper, section 4). The model's attention dropout is ignored.

    Args:
        name: without "/", which transformers reserves.
        temperature: of the Gumbel-softmax samples in training, at least 0.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.

    Raises:
        ValueError: the temperature is out of its range.
    """
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature={temperature}; expected 0 <= temperature < inf")
    _register(name, partial(hard_heads, temperature=temperature, straight_through=straight_through))


def _register(name: str, function: Callable[..., Any]) -> None:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, visible_mask)
