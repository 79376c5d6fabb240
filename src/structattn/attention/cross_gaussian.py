"""Hard-coded Gaussian attention to a memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cached_attention import read_hard_coded
from structattn.attention.cross_attention_cache import StoredMemory
from structattn.attention.explanation import Explanation
from structattn.attention.heads import OutOfHeads
from structattn.attention.mixed_heads import MixedHeads
from structattn.attention.padding import memory_end, without_padding
from structattn.operators.gaussian_attention import Gaussians, Kernel


@dataclass(frozen=True)
class GaussianMemoryState:
    """The values of a memory, the keys and values of learned heads, if there are any, and how many steps were taken."""

    hard: StoredMemory
    learned: StoredMemory | None
    steps: int

    def select(self, indices: Int[Tensor, " chosen"]) -> "GaussianMemoryState":
        """The states of some members of the batch, in a new order."""
        return GaussianMemoryState(self.hard.select(indices), self.learned and self.learned.select(indices), self.steps)


class CrossGaussianAttention(nn.Module):
    """y_i = W_O concat_h(sum_j w_ij v_j) with the values of a memory (You et al. 2020, section 3.2).

    Head h looks at a Gaussian around position floor(ratio * i + offset_h) of the memory, whatever it and the sequence
    hold. The paper has the offsets -1, 0 and 1, its code -1 and 1. Everything else is as in ``GaussianAttention``.

    Args:
        d_model: d, of the sequence and of the memory.
        offsets: one for each hard-coded head, at least one.
        num_learned_heads: number of scaled dot-product heads; the number of all heads, H, must divide d.
        ratio: the paper's gamma: average length of a memory over that of a sequence, in the training data.
        floor: round the centres down, as the paper does; its code does not.
        kernel: which positions count: "full", "window" or "index".
        window: how many, an odd number; read only with that kernel.
        sigma: the standard deviation of the Gaussians.
        dropout: rate at which weights of learned heads are dropped in training.
    """

    def __init__(
        self,
        d_model: int,
        offsets: Sequence[float],
        num_learned_heads: int = 0,
        ratio: float = 1.0,
        floor: bool = True,
        kernel: Kernel = "full",
        window: int = 3,
        sigma: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        gaussians = Gaussians(tuple(offsets), ratio=ratio, floor=floor, sigma=sigma, kernel=kernel, window=window)
        self.heads = MixedHeads(d_model, gaussians, num_learned_heads, dropout)
        self.output = OutOfHeads(d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence. Cost: O((T + S) d^2) for each, and O(T S d / H) more for each learned head."""
        x, memory = without_padding(x, lengths), without_padding(memory, memory_lengths)
        end = memory_end(lengths, memory_lengths, memory.shape[1])
        return without_padding(self.output(self.heads(x, memory, lengths=lengths, memory_lengths=end)), lengths)

    def attend(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time source"]]:
        """What ``forward`` gives, and the weights, before dropout; gradients flow through those of learned heads."""
        x, memory = without_padding(x, lengths), without_padding(memory, memory_lengths)
        end = memory_end(lengths, memory_lengths, memory.shape[1])
        readings, weights = self.heads.attend(x, memory, lengths=lengths, memory_lengths=end)
        return without_padding(self.output(readings), lengths), weights

    def initial_state(
        self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Int[Tensor, " batch"] | None = None
    ) -> GaussianMemoryState:
        """The values of the memory, and the keys of learned heads. Cost: O(S d^2) for each."""
        memory, learned = without_padding(memory, memory_lengths), self.heads.learned
        hard, soft = self.heads.values(memory)
        keys_and_values = None if learned is None else StoredMemory.of([learned.keys(memory), soft], memory_lengths)
        return GaussianMemoryState(StoredMemory.of([hard], memory_lengths), keys_and_values, 0)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: GaussianMemoryState
    ) -> tuple[Float[Tensor, "batch d_model"], GaussianMemoryState]:
        """One more position. Cost: O(d^2), and O(S d / H) more for each learned head."""
        readings, learned = read_hard_coded(self.heads.gaussians, state.hard, state.steps), self.heads.learned
        if learned is not None and state.learned is not None:
            by_learned = learned.read_stored(learned.queries(x_t[:, None]), state.learned)
            readings = torch.cat([readings, by_learned], dim=1)
        return self.output(readings)[:, 0], replace(state, steps=state.steps + 1)

    @torch.no_grad()
    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Int[Tensor, " batch"] | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Explanation:
        """The weights of every head, the hard-coded ones first; theirs need not sum to 1."""
        return Explanation("gaussian", self.attend(x, memory, lengths, memory_lengths)[1])

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []
