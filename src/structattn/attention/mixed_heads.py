"""The heads of a layer of which some are hard-coded and the others, if any, learned."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention.heads import IntoHeads
from structattn.attention.learned_heads import LearnedHeads
from structattn.attention.positions.contract import ScorePositions
from structattn.operators import gaussian_attention, gaussian_weights
from structattn.operators.gaussian_attention import Gaussians


class MixedHeads(nn.Module):
    """Values for all heads by one map W_V without bias, and what the heads read from them, the hard-coded ones first.

    The width is spread evenly over all heads: d^2 parameters, and 2 d^2 / H more for each learned head.

    Args:
        d_model: d.
        gaussians: the hard-coded heads, at least one.
        learned: how many heads are learned; the number of all heads, H, must divide d.
        dropout: rate at which weights of learned heads are dropped in training.
        positions: what acts on the scores of the learned heads.

    Raises:
        ValueError: no hard-coded head, a negative number of learned ones, or H does not divide d.
    """

    def __init__(
        self,
        d_model: int,
        gaussians: Gaussians,
        learned: int,
        dropout: float = 0.0,
        positions: ScorePositions | None = None,
    ) -> None:
        super().__init__()
        if not gaussians.offsets or learned < 0:
            raise ValueError(
                f"{len(gaussians.offsets)} offsets, num_learned_heads={learned}; expected an offset for each "
                "hard-coded head, at least one, and no negative number of learned ones"
            )
        self.gaussians = gaussians
        self.value = IntoHeads(d_model, len(gaussians.offsets) + learned, parts=1, bias=False)
        self.learned = LearnedHeads(d_model, learned, self.value.size, dropout, positions) if learned else None

    def values(
        self, memory: Float[Tensor, "batch source d_model"]
    ) -> tuple[Float[Tensor, "batch hard source size"], Float[Tensor, "batch learned source size"]]:
        """The values of the hard-coded heads, and those of the learned ones."""
        return self.parted(self.value(memory)[0])

    def parted(self, heads: Float[Tensor, "batch heads rows size"]) -> tuple[Tensor, Tensor]:
        """What belongs to the hard-coded heads, and what to the learned ones."""
        count = len(self.gaussians.offsets)
        return heads[:, :count], heads[:, count:]

    def _read_hard_coded(self, values: Float[Tensor, "batch hard source size"], **place: Any) -> Tensor:
        """What the hard-coded heads read; ``place`` tells ``gaussian_attention`` which queries and keys these are."""
        return gaussian_attention(values, **self._keywords(), **place)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], memory: Float[Tensor, "batch source d_model"], **ends: Any
    ) -> Float[Tensor, "batch heads time size"]:
        """What all heads read at the positions of ``x``; ``ends`` are lengths and memory_lengths, as for operators."""
        hard, soft = self.values(memory)
        readings = self._read_hard_coded(hard, queries=x.shape[1], **ends)
        if self.learned is None:
            return readings
        return torch.cat([readings, self.learned(x, memory, soft, causal=self.gaussians.causal, **ends)], dim=1)

    def attend(
        self, x: Float[Tensor, "batch time d_model"], memory: Float[Tensor, "batch source d_model"], **ends: Any
    ) -> tuple[Float[Tensor, "batch heads time size"], Float[Tensor, "batch heads time source"]]:
        """What ``forward`` gives, and the weights, those of learned heads before dropout and with gradients."""
        hard, soft = self.values(memory)
        readings = self._read_hard_coded(hard, queries=x.shape[1], **ends)
        weights = self._hard_coded_weights(x, memory, **ends)
        if self.learned is None:
            return readings, weights
        options = {"causal": self.gaussians.causal, "return_weights": True}
        more_readings, more_weights = self.learned(x, memory, soft, **options, **ends)
        return torch.cat([readings, more_readings], dim=1), torch.cat([weights, more_weights.to(weights.dtype)], dim=1)

    def _hard_coded_weights(self, x: Tensor, memory: Tensor, **ends: Any) -> Tensor:
        dtype = torch.promote_types(memory.dtype, torch.float32)
        place: dict[str, Any] = {"queries": x.shape[1], "keys": memory.shape[1], "dtype": dtype, "device": x.device}
        weights = gaussian_weights(**self._keywords(), **place, **ends)
        return weights.expand(x.shape[0], *weights.shape[-3:])

    def _keywords(self) -> dict[str, Any]:
        return vars(self.gaussians)  # asdict copies deeply, which counts where one position is read at a time
