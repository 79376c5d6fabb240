"""One layer of a transformer: residual sublayers, any of which may be absent."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from structattn.attention import (
    AttentionLayer,
    CrossAttentionLayer,
    CrossTwoStreamAttention,
    Explanation,
    TwoStreamAttention,
)
from structattn.attention.explanation import Sublayer
from structattn.models.residual import Memory, Residual, Seen, Vectors
from structattn.models.streams import layer_norm

# A sublayer's name where it attends to anything, the sublayer, and what it takes besides x.
_Seeing = tuple[Sublayer | None, Residual, tuple[Seen, ...]]


@dataclass(frozen=True)
class BlockState:
    """The states of the sublayers that keep one; None for a sublayer that is absent.

    Args:
        attention: of self-attention.
        cross: of cross-attention; it knows of the memory and of nothing that was read.
        stack: of an added stack.
    """

    attention: Any
    cross: Any
    stack: Any

    def select(self, indices: Int[Tensor, " chosen"]) -> "BlockState":
        """The states of some members of the batch, in a new order."""
        states = (self.attention, self.cross, self.stack)
        return BlockState(*(None if state is None else state.select(indices) for state in states))


class Block(nn.Module):
    """Self-attention, cross-attention, feed-forward, added stack, in this order, each with its residual connection.

    A sublayer that is None is absent with its residual connection and its norm. Stack attention stands in the place of
    self-attention (DuSell & Chiang 2024, section 5), or is added after the feed-forward sublayer as H = S(H) + H,
    without norm and dropout (Li et al. 2024, equation 26).

    What goes through a block are vectors (B, T, d), or two streams of them, which the sublayers must then be made for,
    and which have norms of their own (the Discrete Transformer paper, section 5).

    Args:
        d_model: d.
        attention: self-attention, a module that is an ``AttentionLayer``.
        cross: attention to a memory, a module that is a ``CrossAttentionLayer``.
        feedforward: a module that maps each position.
        stack: what is added at the end, a module that is an ``AttentionLayer``.
        norm: where the layer norms stand, before the sublayers or after their sums.
        dropout: rate for the outputs of the first three sublayers.
        two_streams: whether two streams go through.
    """

    def __init__(
        self,
        d_model: int,
        attention: AttentionLayer | TwoStreamAttention | None = None,
        cross: CrossAttentionLayer | CrossTwoStreamAttention | None = None,
        feedforward: nn.Module | None = None,
        stack: AttentionLayer | None = None,
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
        two_streams: bool = False,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm={norm!r}; expected 'pre' or 'post'")

        def residual(layer: Any) -> Residual | None:
            return None if layer is None else Residual(layer, layer_norm(d_model, two_streams), norm, dropout)

        self.attention = residual(attention)
        self.cross = residual(cross)
        self.feedforward = residual(feedforward)
        self.stack = None if stack is None else Residual(cast(nn.Module, stack))

    def forward(
        self,
        x: Vectors,
        lengths: Int[Tensor, " batch"] | None = None,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Vectors:
        """A whole sequence. ``memory`` is what cross-attention looks at; a block without it takes no notice."""
        for _, sublayer, seen in self._sublayers(lengths, memory, memory_lengths):
            x = sublayer(x, *seen)
        return x

    def attend(
        self,
        x: Vectors,
        lengths: Int[Tensor, " batch"] | None = None,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Vectors, tuple[Tensor | None, Tensor | None]]:
        """What ``forward`` gives, and the weights within the sequence (B, H, T, T) and to the memory (B, H, T, S).

        Gradients flow through them. They are None for an attention that is absent or hands out none, as stacks do, and
        those within the sequence where an added stack mixes positions as well. A list of them is what
        ``receptive_field`` and ``decoder_receptive_fields`` take.
        """
        found: dict[Sublayer | None, Tensor | None] = {}
        for name, sublayer, seen in self._sublayers(lengths, memory, memory_lengths):
            x, found[name] = sublayer.attend(x, *seen)
        return x, (None if self.stack else found.get("attention"), found.get("cross"))

    def initial_state(
        self,
        batch_size: int,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> BlockState:
        """The states before the first step; keys and values of the memory are computed once, here."""
        self._require(memory)
        return BlockState(
            None if self.attention is None else self.attention.layer.initial_state(batch_size),
            None if self.cross is None else self.cross.layer.initial_state(memory, memory_lengths),
            None if self.stack is None else self.stack.layer.initial_state(batch_size),
        )

    def step(self, x_t: Vectors, state: BlockState) -> tuple[Vectors, BlockState]:
        """One more position, and the states after it."""
        attention, cross, stack = state.attention, state.cross, state.stack
        if self.attention is not None:
            x_t, attention = self.attention.step(x_t, attention)
        if self.cross is not None:
            x_t, cross = self.cross.step(x_t, cross)
        if self.feedforward is not None:
            x_t = self.feedforward(x_t)
        if self.stack is not None:
            x_t, stack = self.stack.step(x_t, stack)
        return x_t, BlockState(attention, cross, stack)

    @torch.no_grad()
    def explain(
        self,
        x: Vectors,
        lengths: Int[Tensor, " batch"] | None = None,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Vectors, list[Explanation]]:
        """What each sublayer attends to when the block is given ``x``; the block's output comes first."""
        explanations = []
        for name, sublayer, seen in self._sublayers(lengths, memory, memory_lengths):
            if name is not None:
                explanations.append(replace(sublayer.explain(x, *seen), sublayer=name))
            x = sublayer(x, *seen)
        return x, explanations

    def _sublayers(self, lengths: Tensor | None, memory: Memory | None, memory_lengths: Tensor | None) -> list[_Seeing]:
        """The sublayers that are there."""
        self._require(memory)
        all_of_them: list[tuple[Sublayer | None, Residual | None, tuple[Seen, ...]]] = [
            ("attention", self.attention, (lengths,)),
            ("cross", self.cross, (memory, lengths, memory_lengths)),
            (None, self.feedforward, ()),
            ("stack", self.stack, (lengths,)),
        ]
        return [(name, sublayer, seen) for name, sublayer, seen in all_of_them if sublayer is not None]

    def _require(self, memory: Memory | None) -> None:
        if self.cross is not None and memory is None:
            raise ValueError("this block attends to a memory; give one")
