"""Hard attention for models of transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from structattn.huggingface.grouped_heads import one_for_each_query_head
from structattn.huggingface.visibility import refuse, visible_keys, weights_are_wanted
from structattn.operators import hard_attention


@dataclass(frozen=True)
class HardAttentionFunction:
    """What transformers calls in the place of softmax attention: each query reads one value.

    In training mode the read is a Gumbel-softmax draw, in evaluation mode the value with the best score (the Discrete
    Transformer paper, section 4). No weights are dropped, whatever the model's rate of attention dropout.

    Args:
        temperature: of the draw.
        straight_through: read one value in training, too.
    """

    temperature: float = 1.0
    straight_through: bool = False

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        position_bias: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """The readings (B, T, H, d), and the weights (B, H, T, S) if they are asked for.

        Args:
            module: the attention module that calls.
            query: (B, H, T, d).
            key: (B, K, S, d), with K a divisor of H.
            value: as ``key``.
            attention_mask: see ``visible_keys``; what it adds to scores is added.
            scaling: factor of the scores; d ** -0.5 where None.
            position_bias: added to the scores.
            **kwargs: the rest of what transformers passes.

        Raises:
            ValueError: the model uses what has no meaning here.
        """
        refuse("hard", kwargs, "softcap", "s_aux", "cache")
        key, value = (one_for_each_query_head(tensor, query) for tensor in (key, value))
        scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
        for bias in (attention_mask, position_bias):
            scores = scores if bias is None or bias.dtype == torch.bool else scores + bias[..., : key.shape[2]]
        visible = visible_keys(module, attention_mask, query.shape[2], key.shape[2], scores.device)
        attend: Callable[..., tuple[Tensor, ...]] = hard_attention
        readings, _, *weights = attend(
            scores.masked_fill(~visible, -torch.inf),
            value,
            self.temperature,
            sample=module.training,
            straight_through=self.straight_through,
            return_weights=weights_are_wanted(kwargs),
        )
        return readings.transpose(1, 2).contiguous(), weights[0] if weights else None
