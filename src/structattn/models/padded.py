"""Blank positions after a string, in which a transformer computes before it answers (Merrill & Sabharwal 2025)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from structattn.support.shapes import Float, Int


class PaddedLayers(nn.Module):
    """Layers that read P = number + factor · n blank positions after the n symbols of each string.

    All blanks have one learned embedding. The layers are causal, so that outputs at symbols do not depend on blanks,
    which serve the label of the whole string alone: see ``at_the_end``. P depends on each string alone, not on the
    others of its batch, and layers are repeated as often as for the string without blanks. Methods other than
    ``forward`` are those of the layers, without blanks.

    Cost: d_model parameters, and that of the layers at 1 + n + P positions.

    Args:
        layers: ``LoopedLayers``, causal; they know no positions but those in attention scores.
        d_model: the size of the embedding.
        number: see above.
        factor: see above.
    """

    layers: Any  # LoopedLayers

    def __init__(self, layers: nn.Module, d_model: int, number: int, factor: int) -> None:
        super().__init__()
        self.layers, self.number, self.factor = layers, number, factor
        self.blank = nn.Parameter(torch.randn(d_model) / math.sqrt(d_model))

    def sizes(self, lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Return 1 + n + P for texts of 1 + n tokens, <bos> included."""
        return lengths + self.number + self.factor * (lengths - 1)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch longer d_model"]:
        """Return the outputs at all positions of the longest string with its blanks; those at padding are undefined."""
        batch, time, d_model = x.shape
        lengths = torch.full((batch,), time, device=x.device) if lengths is None else lengths.to(x.device)
        sizes = self.sizes(lengths)
        longest = max(time, int(sizes.max())) if batch else time
        blanks = (self.blank * math.sqrt(d_model)).expand(batch, longest, d_model).to(x.dtype)
        is_symbol = torch.arange(longest, device=x.device) < lengths[:, None]
        filled = torch.where(is_symbol[..., None], nn.functional.pad(x, (0, 0, 0, longest - time)), blanks)
        y: Tensor = self.layers(filled, sizes, lengths)
        return y

    def at_the_end(
        self, label: Float[Tensor, "batch longer"], lengths: Int[Tensor, " batch"], time: int
    ) -> Float[Tensor, "batch time"]:
        """Return the outputs at symbols, that of the last symbol replaced by that of the last blank."""
        last = label.gather(1, (self.sizes(lengths) - 1)[:, None])
        return label[:, :time].scatter(1, (lengths - 1)[:, None], last)

    @property
    def blocks(self) -> Sequence[Any]:
        """The blocks of the layers."""
        blocks: Sequence[Any] = self.layers.blocks
        return blocks

    def hidden_states(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the outputs at symbols."""
        return self.layers.hidden_states(x, lengths)

    def attend(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the outputs at symbols, and the attention weights."""
        return self.layers.attend(x, lengths)

    def explain(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the attention weights at symbols."""
        return self.layers.explain(x, lengths)

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first position."""
        return self.layers.initial_state(batch_size)

    def step(self, x: Tensor, state: Any) -> Any:
        """Process one symbol."""
        return self.layers.step(x, state)
