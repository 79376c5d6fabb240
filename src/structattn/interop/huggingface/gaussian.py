"""Hard-coded Gaussian attention for models of transformers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from structattn.interop.huggingface.visibility import (
    is_causal,
    outputs_attentions,
    reject_arguments,
    repeat_kv,
    visible_keys,
)
from structattn.operators import gaussian_weights
from structattn.operators.gaussian_attention import Kernel

CAUSAL_OFFSETS, OTHER_OFFSETS = (-1, 0), (-1, 1)


@dataclass(frozen=True)
class GaussianAttentionFunction:
    """Attention function for transformers, with hard-coded Gaussian weights.

    Weights are those of You et al. (2020, section 3.1, equation 2), unnormalised, and zero for masked keys. Queries and
    keys are unused, so that their projections get no gradient. The model's attention dropout is ignored.

    Args:
        offsets: centres relative to the query, repeated for all heads; None: the paper's, -1 and 0 for causal
            attention, -1 and 1 otherwise.
        sigma: the standard deviation, in positions.
        kernel: "full", "window" or "index", as for ``gaussian_attention``.
        window: number of keys for the kernel "window".
    """

    offsets: tuple[float, ...] | None = None
    sigma: float = 1.0
    kernel: Kernel = "full"
    window: int = 3

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the outputs (B, T, H, d), and the weights (B, H, T, S) on request.

        Args:
            module: the calling attention module.
            query: (B, H, T, d); only its shape is used.
            key: (B, K, S, d); unused.
            value: (B, K, S, d), with K a divisor of H.
            attention_mask: see ``visible_keys``.
            **kwargs: other arguments of transformers.

        Raises:
            ValueError: the module is cross-attention.
        """
        reject_arguments("gaussian", kwargs, "cache")
        reject_cross_attention(module, query.shape[2], value.shape[2])
        visible = visible_keys(module, attention_mask, query.shape[2], value.shape[2], value.device)
        weights = self.weights(module, query.shape[1], visible).to(value.dtype)
        outputs = weights @ repeat_kv(value, query)
        weights = weights.expand(query.shape[0], -1, -1, -1)
        return outputs.transpose(1, 2).contiguous(), weights if outputs_attentions(kwargs) else None

    def weights(self, module: nn.Module, num_heads: int, visible: Tensor) -> Tensor:
        """Return the weights (1 or B, H, T, S) in float32."""
        offsets = self.offsets or (CAUSAL_OFFSETS if is_causal(module) else OTHER_OFFSETS)
        weights = gaussian_weights(
            [offsets[head % len(offsets)] for head in range(num_heads)],
            *visible.shape[2:],
            sigma=self.sigma,
            kernel=self.kernel,
            window=self.window,
            first=first_query(visible),
            device=visible.device,
        )
        same_for_all = visible.stride(0) == 0  # one mask, expanded to the batch
        return torch.where(visible[:1] if same_for_all else visible, weights, 0)


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
