"""Hard-coded Gaussian attention: self-attention and cross-attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.cache import Cache, CrossAttentionCache, KeyValueCache
from structattn.attention.heads import require_causal
from structattn.attention.mixed_heads import MixedHeads
from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import OutputProjection, concatenate_heads, one_position
from structattn.attention.protocols import Explanation
from structattn.operators import gaussian_attention
from structattn.operators.common.checks import full_memory_lengths, mask_padding, wrong_batch, wrong_width
from structattn.operators.common.kernels import can_index_rows
from structattn.operators.common.states import Selectable
from structattn.operators.gaussian_attention import Gaussians, Kernel
from structattn.operators.gaussian_attention.cpu import gaussian_attention_indexed
from structattn.support.shapes import Float, Lengths


@dataclass(frozen=True)
class GaussianState(Selectable):
    """The last few values of the hard-coded heads, and all keys and values of the learned heads, if any."""

    recent: KeyValueCache
    learned: KeyValueCache | None


class GaussianAttention(nn.Module):
    """y_i = W_O concat_h(sum_j w_ij v_j) with hard-coded weights (You et al. 2020, section 3.1).

    The weights of head h are a Gaussian around position i + offset_h (see ``gaussian_attention``). There are no
    queries, keys or biases: 2 d^2 parameters, W_V and W_O. The paper's offsets are -1 and 1 in encoders and -1 and 0 in
    decoders, repeated for all heads. Each learned head adds d / H rows of W_Q and of W_K: 2 d^2 / H parameters.

    Args:
        d_model: d.
        offsets: one for each hard-coded head, at least one.
        num_learned_heads: number of scaled dot-product heads; the number of all heads, H, must divide d.
        kernel: which positions have weights: "full", "window" or "index"; see ``gaussian_attention``.
        window: number of positions for the kernel "window"; odd.
        sigma: the standard deviation of the Gaussians.
        causal: position i attends to positions up to i only. A bidirectional layer has no ``step``.
        dropout: rate at which weights of learned heads are dropped in training.
        positions: acts on the scores of the learned heads; a module of this layer alone.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        offsets: Sequence[float],
        *,
        num_learned_heads: int = 0,
        kernel: Kernel = "full",
        window: int = 3,
        sigma: float = 1.0,
        causal: bool = True,
        dropout: float = 0.0,
        positions: ScorePositions | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        gaussians = Gaussians(tuple(offsets), sigma=sigma, kernel=kernel, window=window, causal=causal)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.heads = MixedHeads(d_model, gaussians, num_learned_heads, dropout, positions, **factory)
        self.d_model, self.num_heads, self.causal = d_model, self.heads.num_heads, causal
        self.output = OutputProjection(d_model, d_model, bias=False, **factory)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O(T d^2) each, and O(T^2 d / H) for each learned head."""
        x = mask_padding(x, lengths)
        return mask_padding(self.output(concatenate_heads(self.heads(x, x, lengths=lengths))), lengths)

    def attend(
        self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time time"]]:
        """Return the output and the weights, before dropout; those of learned heads are differentiable."""
        x = mask_padding(x, lengths)
        outputs, weights = self.heads.attend(x, x, lengths=lengths)
        return mask_padding(self.output(concatenate_heads(outputs)), lengths), weights

    def initial_state(self, batch_size: int) -> GaussianState:
        """Return empty caches."""
        require_causal(self.heads.gaussians.causal)
        hard, size, like = len(self.heads.gaussians.offsets), self.heads.size, self.heads.value.weight
        learned = self.num_heads - hard
        keys_and_values = KeyValueCache.empty(batch_size, [(learned, size)] * 2, like) if learned else None
        return GaussianState(KeyValueCache.empty(batch_size, [(hard, size)], like), keys_and_values)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: GaussianState
    ) -> tuple[Float[Tensor, "batch d_model"], GaussianState]:
        """Process one position. Cost: O(d^2), and O(t d / H) for each learned head in step t."""
        x, learned, cache = one_position(x_t), self.heads.learned, state.learned
        hard, soft = self.heads.values(x)
        recent = state.recent.append(hard)
        recent = recent.last(self._num_needed(recent))
        outputs = _cached_attention(self.heads.gaussians, recent, recent.num_steps - 1)
        if learned is not None and cache is not None:
            cache = cache.append(learned.keys(x), soft)
            outputs = torch.cat([outputs, learned.attend_cached(learned.queries(x), cache)], dim=1)
        return self.output(outputs.flatten(1)), GaussianState(recent, cache)

    @torch.no_grad()
    def explain(self, x: Float[Tensor, "batch time d_model"], lengths: Lengths = None) -> Explanation:
        """Return the weights of every head, the hard-coded ones first; theirs need not sum to 1."""
        return Explanation("gaussian", self.attend(x, lengths)[1])

    def _num_needed(self, values: KeyValueCache) -> int:
        """The number of last values to which this position or a later one can attend."""
        return self.heads.gaussians.values_needed(torch.promote_types(values.rows[0].dtype, torch.float32))


@dataclass(frozen=True)
class CrossGaussianState(Selectable):
    """The values of the hard-coded heads, keys and values of the learned heads, if any, and the number of steps."""

    hard: CrossAttentionCache
    learned: CrossAttentionCache | None
    steps: int


class CrossGaussianAttention(nn.Module):
    """``GaussianAttention`` to a memory (You et al. 2020, section 3.2).

    The weights of head h are a Gaussian around position floor(ratio * i + offset_h) of the memory. The paper's offsets
    are -1, 0 and 1, those of its code -1 and 1.

    Args:
        d_model: d, of the sequence and of the memory.
        offsets: one for each hard-coded head, at least one.
        num_learned_heads: number of scaled dot-product heads; the number of all heads, H, must divide d.
        ratio: the paper's gamma, the average memory length over the average sequence length of the training data.
        floor: round the centres down, as the paper does; its code does not.
        kernel: which positions have weights: "full", "window" or "index"; see ``gaussian_attention``.
        window: number of positions for the kernel "window"; odd.
        sigma: the standard deviation of the Gaussians.
        dropout: rate at which weights of learned heads are dropped in training.
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        offsets: Sequence[float],
        *,
        num_learned_heads: int = 0,
        ratio: float = 1.0,
        floor: bool = True,
        kernel: Kernel = "full",
        window: int = 3,
        sigma: float = 1.0,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        gaussians = Gaussians(tuple(offsets), ratio=ratio, floor=floor, sigma=sigma, kernel=kernel, window=window)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.heads = MixedHeads(d_model, gaussians, num_learned_heads, dropout, **factory)
        self.num_heads = self.heads.num_heads
        self.output = OutputProjection(d_model, d_model, bias=False, **factory)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Lengths = None,
        memory_lengths: Lengths = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Process whole sequences. Cost: O((T + S) d^2) each, and O(T S d / H) for each learned head."""
        x = self._of_this_width(mask_padding(x, lengths))
        memory = mask_padding(memory, memory_lengths, "memory_lengths")
        end = full_memory_lengths(x, memory, lengths, memory_lengths)
        outputs = self.heads(x, memory, lengths=lengths, memory_lengths=end)
        return mask_padding(self.output(concatenate_heads(outputs)), lengths)

    def attend(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Lengths = None,
        memory_lengths: Lengths = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], Float[Tensor, "batch heads time source"]]:
        """Return the output and the weights, before dropout; those of learned heads are differentiable."""
        x = self._of_this_width(mask_padding(x, lengths))
        memory = mask_padding(memory, memory_lengths, "memory_lengths")
        end = full_memory_lengths(x, memory, lengths, memory_lengths)
        outputs, weights = self.heads.attend(x, memory, lengths=lengths, memory_lengths=end)
        return mask_padding(self.output(concatenate_heads(outputs)), lengths), weights

    def initial_state(
        self, memory: Float[Tensor, "batch source d_model"], memory_lengths: Lengths = None
    ) -> CrossGaussianState:
        """Project the memory to values, and to keys of learned heads. Cost: O(S d^2) each."""
        memory, learned = mask_padding(memory, memory_lengths, "memory_lengths"), self.heads.learned
        hard, soft = self.heads.values(memory)
        keys_and_values = (
            None if learned is None else CrossAttentionCache.from_tensors([learned.keys(memory), soft], memory_lengths)
        )
        return CrossGaussianState(CrossAttentionCache.from_tensors([hard], memory_lengths), keys_and_values, 0)

    def step(
        self, x_t: Float[Tensor, "batch d_model"], state: CrossGaussianState
    ) -> tuple[Float[Tensor, "batch d_model"], CrossGaussianState]:
        """Process one position. Cost: O(d^2), and O(S d / H) for each learned head."""
        x = self._of_this_width(one_position(x_t))
        if len(x_t) != len(state.hard.row_indices):
            raise wrong_batch(x_t, state.hard.row_indices)
        outputs, learned = _cached_attention(self.heads.gaussians, state.hard, state.steps), self.heads.learned
        if learned is not None and state.learned is not None:
            learned_outputs = learned.attend_cached(learned.queries(x), state.learned)
            outputs = torch.cat([outputs, learned_outputs], dim=1)
        return self.output(outputs.flatten(1)), replace(state, steps=state.steps + 1)

    @torch.no_grad()
    def explain(
        self,
        x: Float[Tensor, "batch time d_model"],
        memory: Float[Tensor, "batch source d_model"],
        lengths: Lengths = None,
        memory_lengths: Lengths = None,
    ) -> Explanation:
        """Return the weights of every head, the hard-coded ones first; theirs need not sum to 1."""
        return Explanation("gaussian", self.attend(x, memory, lengths, memory_lengths)[1])

    def _of_this_width(self, x: Tensor) -> Tensor:
        """Return the input, of which hard-coded heads read nothing but the number of positions."""
        if x.shape[-1] != self.output.out_features:
            raise wrong_width(x, self.output.out_features)
        return x


def _cached_attention(gaussians: Gaussians, cache: Cache, first: int) -> Float[Tensor, "batch heads 1 size"]:
    """Return Gaussian attention of the query at position ``first`` to the cached values, the cache's first tensor."""
    values = cache.rows[0]
    if can_index_rows(values):
        return gaussian_attention_indexed(
            values, cache.row_indices, gaussians, first=first, memory_lengths=cache.lengths
        )
    query: dict[str, Any] = {"queries": 1, "first": first, "memory_lengths": cache.lengths}
    return gaussian_attention(cache.tensors[0], **gaussians.options, **query)
