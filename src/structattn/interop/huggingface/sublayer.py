"""Residual sublayer with a stack."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import initialization

from structattn.attention import AttentionLayer
from structattn.interop.huggingface.cache import StackCacheLayer, initial_history, process_next, process_sequences
from structattn.interop.huggingface.padding import Padding
from structattn.models.builders.mechanisms import build_stack
from structattn.settings.huggingface import Stack


class StackSublayer(nn.Module):
    """h <- h + S(h), or h <- h + g S(h) (Li et al. 2024, section 3.3, equation 26): no layer norm, no dropout.

    Args:
        stack: settings of S and of the gate g.
        d_model: the size of h.
    """

    attention: AttentionLayer

    def __init__(self, stack: Stack, d_model: int) -> None:
        super().__init__()
        self.attention = build_stack(d_model, stack)
        self.gate = nn.Parameter(torch.zeros(1)) if stack.gate else None

    def forward(
        self, h: Float[Tensor, "batch time d_model"], padding: Padding | None, cache: StackCacheLayer | None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process the positions after those in the cache; padding is unchanged.

        Raises:
            ValueError: the cache holds positions that the stack has not processed.
        """
        y = self._attend(h, padding, cache)
        return h + (y if self.gate is None else self.gate * y)

    def initialize(self) -> None:
        """Set the gate and the stack's bottom vector to zero, unless they were loaded."""
        for parameter in [self.gate, getattr(self.attention, "bottom", None)]:
            if parameter is not None:
                initialization.zeros_(parameter)

    def _attend(self, h: Tensor, padding: Padding | None, cache: StackCacheLayer | None) -> Tensor:
        if cache is None:
            return process_sequences(self.attention, h, padding)
        seen = 0 if cache.stack is None else cache.stack.columns
        if seen + h.shape[1] != cache.get_seq_length():
            raise ValueError(
                f"the cache holds {cache.get_seq_length()} positions; expected {seen + h.shape[1]}: {seen} that the "
                f"stack has processed and {h.shape[1]} new ones"
            )
        if cache.stack is None:
            cache.stack = initial_history(self.attention, h, padding)
            return process_sequences(self.attention, h, padding)
        y, cache.stack = process_next(self.attention, cache.stack, h, padding)
        return y
