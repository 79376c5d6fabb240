"""A stack as one more residual sublayer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import initialization

from structattn.attention import AttentionLayer
from structattn.building.builders import build_stack
from structattn.huggingface.cache import StackCacheLayer
from structattn.huggingface.history import begin, read_on, read_whole
from structattn.huggingface.padding import Padding
from structattn.huggingface.stacks import Stack


class StackSublayer(nn.Module):
    """h <- h + S(h), or h <- h + g S(h) (Li et al. 2024, section 3.3, equation 26): no layer norm, no dropout.

    Args:
        stack: what S is, and whether there is a gate g.
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
        """The next positions, after those that the cache has seen. Padding stays as it is.

        Raises:
            ValueError: the cache holds keys of positions that the stack has not seen.
        """
        y = self._read(h, padding, cache)
        return h + (y if self.gate is None else self.gate * y)

    def initialize(self) -> None:
        """Zeros for what is not a map's weight, unless it was loaded: the gate, and what lies below the stack."""
        for parameter in [self.gate, getattr(self.attention, "bottom", None)]:
            if parameter is not None:
                initialization.zeros_(parameter)

    def _read(self, h: Tensor, padding: Padding | None, cache: StackCacheLayer | None) -> Tensor:
        if cache is None:
            return read_whole(self.attention, h, padding)
        seen = 0 if cache.stack is None else cache.stack.columns
        if seen + h.shape[1] != cache.get_seq_length():
            raise ValueError(
                f"the cache holds {cache.get_seq_length()} positions, of which the stack has seen {seen} and is given "
                f"{h.shape[1]} now"
            )
        if cache.stack is None:
            cache.stack = begin(self.attention, h, padding)
            return read_whole(self.attention, h, padding)
        y, cache.stack = read_on(self.attention, cache.stack, h, padding)
        return y
