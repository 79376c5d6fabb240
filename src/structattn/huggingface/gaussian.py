"""Hard-coded Gaussian attention for models of transformers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from structattn.huggingface.grouped_heads import one_for_each_query_head
from structattn.huggingface.visibility import is_causal, refuse, visible_keys, weights_are_wanted
from structattn.operators import gaussian_weights
from structattn.operators.gaussian_attention import Kernel

CAUSAL_OFFSETS, OTHER_OFFSETS = (-1, 0), (-1, 1)


@dataclass(frozen=True)
class GaussianAttentionFunction:
    """What transformers calls in the place of softmax attention: heads that look at fixed distances.

    Weights are those of You et al. (2020, section 3.1, equation 2), not normalised, and zero where the model's mask
    hides a key. Queries, keys and scores go unused, so that the maps that make them get no gradient. No weights are
    dropped, whatever the model's rate of attention dropout.

    Args:
        offsets: where the heads look, relative to their query, repeated until there is one for each head; where None,
            the paper's: -1 and 0 where attention is causal, -1 and 1 elsewhere.
        sigma: the standard deviation, in positions.
        kernel: "full", "window" or "index", as for ``gaussian_attention``.
        window: how many keys a window holds.
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
        """The readings (B, T, H, d), and the weights (B, H, T, S) if they are asked for.

        Args:
            module: the attention module that calls.
            query: (B, H, T, d), of which only the shape counts.
            key: (B, K, S, d), likewise.
            value: (B, K, S, d), with K a divisor of H.
            attention_mask: see ``visible_keys``.
            **kwargs: the rest of what transformers passes.

        Raises:
            ValueError: this is attention to another sequence, whose positions have no place in this one.
        """
        refuse("gaussian", kwargs, "cache")
        refuse_cross_attention(module, query.shape[2], value.shape[2])
        visible = visible_keys(module, attention_mask, query.shape[2], value.shape[2], value.device)
        weights = self.weights(module, query.shape[1], visible).to(value.dtype)
        readings = weights @ one_for_each_query_head(value, query)
        weights = weights.expand(query.shape[0], -1, -1, -1)
        return readings.transpose(1, 2).contiguous(), weights if weights_are_wanted(kwargs) else None

    def weights(self, module: nn.Module, num_heads: int, visible: Tensor) -> Tensor:
        """(1 or B, H, T, S) in float32."""
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
        same_for_all = visible.stride(0) == 0  # a mask that is one and the same for the whole batch, expanded
        return torch.where(visible[:1] if same_for_all else visible, weights, 0)


def first_query(visible: Tensor) -> int:
    """The key at whose position the first query stands.

    As many queries as keys stand side by side. Otherwise earlier keys come from a cache, and attention is causal: the
    last key that a query sees is its own, unless it is padding, which sees less. That also holds where a cache has
    room to spare behind the last key.
    """
    queries, keys = visible.shape[2:]
    if queries == keys:
        return 0
    last = torch.where(visible, torch.arange(keys, device=visible.device), -1).amax(-1)
    first = last - torch.arange(queries, device=visible.device)
    return max(0, int(first.max()))


def refuse_cross_attention(module: nn.Module, queries: int, keys: int) -> None:
    """Positions of two sequences are not counted alike.

    Raises:
        ValueError: the module says that it looks at another sequence, or that it is not causal, with other positions.
    """
    cross = getattr(module, "is_cross_attention", False) or "CrossAttention" in type(module).__name__
    if cross or (not is_causal(module) and queries != keys):
        raise ValueError(
            f"{type(module).__name__} attends from {queries} positions to {keys} of another sequence; gaussian "
            "attention is there for self-attention only"
        )
