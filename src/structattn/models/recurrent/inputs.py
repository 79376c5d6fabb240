"""Inputs of a recurrent network."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from structattn.support.special_tokens import BOS, FIRST_SYMBOL


class OneHot(nn.Module):
    """One-hot encoding of V symbols; zeros for <pad>, <bos> and <eos>.

    Args:
        vocabulary_size: number of ids, V + 3.
    """

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        if vocabulary_size < FIRST_SYMBOL:
            raise ValueError(f"vocabulary_size={vocabulary_size}; expected at least 3: <pad>, <bos> and <eos>")
        self.size = vocabulary_size - FIRST_SYMBOL
        self.register_buffer("one", torch.ones(()), persistent=False)  # holds the dtype and device

    def forward(self, tokens: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time symbols"]:
        """Return the encoding of each token."""
        symbols = torch.arange(FIRST_SYMBOL, FIRST_SYMBOL + self.size, device=tokens.device)
        return (tokens[..., None] == symbols).to(self.get_buffer("one").dtype)


@dataclass(frozen=True)
class InputWithoutBos:
    """Input tokens without a leading <bos>, which corresponds to the state before the first step.

    Args:
        tokens: T' per sequence; undefined past each length.
        lengths: number of tokens per sequence; None: no padding.
        has_bos: whether a <bos> was removed; one value for all, or one per sequence.
    """

    tokens: Int[Tensor, "batch read"]
    lengths: Int[Tensor, " batch"] | None
    has_bos: bool | Bool[Tensor, " batch"]

    def restore_bos(
        self, hiddens: Float[Tensor, "batch read units"], initial: Float[Tensor, "batch units"]
    ) -> Float[Tensor, "batch time units"]:
        """Insert the initial hidden state at the position of each removed <bos>."""
        if self.has_bos is False:
            return hiddens
        whole = torch.cat([initial[:, None].to(hiddens.dtype), hiddens], dim=1)
        if self.has_bos is True:
            return whole
        time = hiddens.shape[1]
        positions = torch.arange(time, device=hiddens.device) + (~self.has_bos).long()[:, None]
        return whole.take_along_dim(positions[..., None], dim=1)


def remove_bos(tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None) -> InputWithoutBos:
    """Remove a leading <bos> from the sequences that have one."""
    if tokens.shape[1] == 0:
        return InputWithoutBos(tokens, lengths, has_bos=False)
    has_bos = tokens[:, 0] == BOS
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        if bool(has_bos.all()):
            return InputWithoutBos(tokens[:, 1:], None if lengths is None else (lengths - 1).clamp(min=0), has_bos=True)
        if not bool(has_bos.any()):
            return InputWithoutBos(tokens, lengths, has_bos=False)
    time = tokens.shape[1]
    positions = (torch.arange(time, device=tokens.device) + has_bos.long()[:, None]).clamp(max=time - 1)
    ends = torch.full_like(tokens[:, 0], time) if lengths is None else lengths
    return InputWithoutBos(tokens.take_along_dim(positions, dim=1), (ends - has_bos.long()).clamp(min=0), has_bos)
