"""Hard attention for models of transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from structattn.interop.huggingface.visibility import outputs_attentions, reject_arguments, repeat_kv, visible_keys
from structattn.operators import hard_attention


@dataclass(frozen=True)
class HardAttentionFunction:
    """Attention function for transformers, in which each query selects one value.

    The selection is a Gumbel-softmax sample in training mode and the largest score in evaluation mode (the Discrete
    Transformer paper, section 4). The model's attention dropout is ignored.

    Args:
        temperature: of the samples.
        straight_through: use one-hot samples in training, too.
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
        """Return the outputs (B, T, H, d), and the weights (B, H, T, S) on request.

        Args:
            module: the calling attention module.
            query: (B, H, T, d).
            key: (B, K, S, d), with K a divisor of H.
            value: as ``key``.
            attention_mask: see ``visible_keys``; a floating-point mask is added to the scores.
            scaling: factor of the scores; None: d ** -0.5.
            position_bias: added to the scores.
            **kwargs: other arguments of transformers.

        Raises:
            ValueError: the model uses an argument that is not supported.
        """
        reject_arguments("hard", kwargs, "softcap", "s_aux", "cache")
        key, value = (repeat_kv(tensor, query) for tensor in (key, value))
        scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
        for bias in (attention_mask, position_bias):
            scores = scores if bias is None or bias.dtype == torch.bool else scores + bias[..., : key.shape[2]]
        visible = visible_keys(module, attention_mask, query.shape[2], key.shape[2], scores.device)
        attend: Callable[..., tuple[Tensor, ...]] = hard_attention
        outputs, _, *weights = attend(
            scores.masked_fill(~visible, -torch.inf),
            value,
            self.temperature,
            sample=module.training,
            straight_through=self.straight_through,
            return_weights=outputs_attentions(kwargs),
        )
        return outputs.transpose(1, 2).contiguous(), weights[0] if weights else None
