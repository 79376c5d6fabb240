"""Hard-coded Gaussian attention within a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention.cached_attention import read_hard_coded
from structattn.attention.explanation import Explanation
from structattn.attention.heads import OutOfHeads
from structattn.attention.key_value_cache import StoredPast, require_causal
from structattn.attention.mixed_heads import MixedHeads
from structattn.attention.padding import without_padding
from structattn.attention.positions.contract import ScorePositions
from structattn.operators.gaussian_attention import Gaussians, Kernel


@dataclass(frozen=True)
class GaussianState:
    """The last few values of the hard-coded heads, and all keys and values of the learned ones, if there are any."""

    recent: StoredPast
    learned: StoredPast | None

    def select(self, indices: Int[Tensor, " chosen"]) -> "GaussianState":
        """The states of some members of the batch, in a new order."""
        return GaussianState(self.recent.select(indices), self.learned and self.learned.select(indices))


class GaussianAttention(nn.Module):
    """y_i = W_O concat_h(sum_j w_ij v_j), with weights that are hard-coded (You et al. 2020, section 3.1).

    Head h looks at a Gaussian around position i + offset_h, as ``gaussian_attention`` describes. It has no queries, no
    keys and no biases: 2 d^2 parameters, W_V and W_O. The paper has the offsets -1 and 1 in encoders, -1 and 0 in
    decoders, repeated until all heads have one. Learned heads may stand beside them, each with d / H rows of W_Q and of
    W_K: 2 d^2 / H parameters more for each.

    Args:
        d_model: d.
        offsets: one for each hard-coded head, at least one.
        num_learned_heads: number of scaled dot-product heads; the number of all heads, H, must divide d.
        kernel: which positions count: "full", "window" or "index".
        window: how many, an odd number; read only with that kernel.
        sigma: the standard deviation of the Gaussians.
        causal: position i sees positions up to i only. A layer that sees everything has no step.
        dropout: rate at which weights of learned heads are dropped in training.
        positions: what acts on the scores of the learned heads; a module of this layer's own.
    """

    def __init__(
        self,
        d_model: int,
        offsets: Sequence[float],
        num_learned_heads: int = 0,
        kernel: Kernel = "full",
        window: int = 3,
        sigma: float = 1.0,
        causal: bool = True,
        dropout: float = 0.0,
        positions: ScorePositions | None = None,
    ) -> None:
        super().__init__()
        gaussians = Gaussians(tuple(offsets), sigma=sigma, kernel=kernel, window=window, causal=causal)
        self.heads = MixedHeads(d_model, gaussians, num_learned_heads, dropout, positions)
        self.output = OutOfHeads(d_model, bias=False)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """A whole sequence. Cost: O(T d^2) for each, and O(T^2 d / H) more for each learned head."""
        x = without_padding(x, lengths)
        return without_padding(self.output(self.heads(x, x, lengths=lengths)), lengths)

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """What ``forward`` gives, and the weights, before dropout; gradients flow through those of learned heads."""
        x = without_padding(x, lengths)
        readings, weights = self.heads.attend(x, x, lengths=lengths)
        return without_padding(self.output(readings), lengths), weights

    def initial_state(self, batch_size: int) -> GaussianState:
        """No values and no keys."""
        require_causal(self.heads.gaussians.causal)
        value, hard = self.heads.value, len(self.heads.gaussians.offsets)
        learned = value.num_heads - hard
        keys_and_values = StoredPast.nothing(batch_size, value, learned, learned) if learned else None
        return GaussianState(StoredPast.nothing(batch_size, value, hard), keys_and_values)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: GaussianState
    ) -> tuple[Float[Tensor, "batch d_model"], GaussianState]:
        """One more position. Cost: O(d^2), and O(t d / H) more for each learned head in step t."""
        x, learned, past = x_t[:, None], self.heads.learned, state.learned
        hard, soft = self.heads.values(x)
        recent = state.recent.and_one_more(hard)
        recent = recent.last(self._needed(recent))
        readings = read_hard_coded(self.heads.gaussians, recent, recent.time - 1)
        if learned is not None and past is not None:
            past = past.and_one_more(learned.keys(x), soft)
            readings = torch.cat([readings, learned.read_stored(learned.queries(x), past)], dim=1)
        return self.output(readings)[:, 0], GaussianState(recent, past)

    @torch.no_grad()
    def explain(
        self, x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Explanation:
        """The weights of every head, the hard-coded ones first; theirs need not sum to 1."""
        return Explanation("gaussian", self.attend(x, lengths)[1])

    def fully_connected(self) -> list[Tensor]:
        """None: these projections are initialised like everything else."""
        return []

    def _needed(self, values: StoredPast) -> int:
        """How many of the values so far this position or a later one may read: the last ones."""
        return self.heads.gaussians.values_needed(torch.promote_types(values.rows[0].dtype, torch.float32))
