"""What a recurrent network is given of its tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from structattn.support.special_tokens import BOS, FIRST_SYMBOL


class OneHot(nn.Module):
    """One of V symbols as V numbers, of which one is 1; all are 0 for <pad>, <bos> and <eos>.

    Args:
        vocabulary_size: all ids, V + 3.
    """

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        if vocabulary_size < FIRST_SYMBOL:
            raise ValueError(f"vocabulary_size={vocabulary_size}; expected at least 3: <pad>, <bos> and <eos>")
        self.size = vocabulary_size - FIRST_SYMBOL
        self.register_buffer("one", torch.ones(()), persistent=False)  # knows the dtype and the device

    def forward(self, tokens: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time symbols"]:
        """The numbers of each token."""
        symbols = torch.arange(FIRST_SYMBOL, FIRST_SYMBOL + self.size, device=tokens.device)
        return (tokens[..., None] == symbols).to(self.get_buffer("one").dtype)


@dataclass(frozen=True)
class Reading:
    """The tokens that are read: all but a <bos> at the beginning, which stands for the state before the first step.

    Args:
        tokens: those that are read, T' of them; what follows each length means nothing.
        lengths: how many of them count; None: all.
        begins: true where <bos> came first and was left out; one truth for all, or one for each sequence.
    """

    tokens: Int[Tensor, "batch read"]
    lengths: Int[Tensor, " batch"] | None
    begins: bool | Bool[Tensor, " batch"]

    def placed(self, hiddens: Float[Tensor, "batch read units"]) -> Float[Tensor, "batch time units"]:
        """Hidden vectors where their tokens stood, and h_0 = 0 where <bos> stood."""
        if self.begins is False:
            return hiddens
        first = hiddens.new_zeros(hiddens.shape[0], 1, hiddens.shape[2])
        whole = torch.cat([first, hiddens], dim=1)
        if self.begins is True:
            return whole
        time = hiddens.shape[1]
        places = torch.arange(time, device=hiddens.device) + (~self.begins).long()[:, None]
        return whole.take_along_dim(places[..., None], dim=1)


def without_bos(tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None) -> Reading:
    """Leave out a <bos> where one stands first; the sequences of a batch may differ in that."""
    if tokens.shape[1] == 0:
        return Reading(tokens, lengths, begins=False)
    begins = tokens[:, 0] == BOS
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        if bool(begins.all()):
            return Reading(tokens[:, 1:], None if lengths is None else (lengths - 1).clamp(min=0), begins=True)
        if not bool(begins.any()):
            return Reading(tokens, lengths, begins=False)
    time = tokens.shape[1]
    places = (torch.arange(time, device=tokens.device) + begins.long()[:, None]).clamp(max=time - 1)
    ends = torch.full_like(tokens[:, 0], time) if lengths is None else lengths
    return Reading(tokens.take_along_dim(places, dim=1), (ends - begins.long()).clamp(min=0), begins)
