"""One transformer block: residual sublayers, each of them optional."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import (
    AttentionLayer,
    CrossAttentionLayer,
    CrossTwoStreamAttention,
    Explanation,
    Streams,
    TwoStreamAttention,
)
from structattn.attention.protocols import Sublayer
from structattn.models.two_stream import FeedForwardFirst, layer_norm
from structattn.operators.common.dropout import checked_rate, dropout
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Float, Lengths

HiddenStates = Float[Tensor, "*batch d_model"] | Streams
Memory = Float[Tensor, "memory source d_model"] | Streams
SublayerArgument = Tensor | Streams | None  # lengths or memory

_NO_MEMORY = "this block has cross-attention; expected a memory"


@runtime_checkable
class _Attending(Protocol):
    """A sublayer that also returns its attention weights."""

    def attend(self, x: HiddenStates, *arguments: SublayerArgument) -> tuple[HiddenStates, Tensor]:
        """Return the output and the weights of the same pass."""
        ...


class Residual(nn.Module):
    """A sublayer f with a residual connection, and optionally layer norm and dropout.

    "pre": y = x + Dropout(f(LayerNorm(x))) (DuSell & Chiang 2024, equations 14 to 16); "post":
    y = LayerNorm(x + Dropout(f(x))) (Vaswani et al. 2017). Each of two streams has its own sum.

    Args:
        layer: f; called with all arguments of the residual.
        norm: the layer norm, for both streams if x has two; None: no norm.
        norm_placement: before f ("pre") or after the sum ("post").
        dropout: rate for f's output.
    """

    layer: Any  # an nn.Module of any kind

    def __init__(
        self,
        layer: nn.Module,
        norm: nn.Module | None = None,
        norm_placement: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if norm_placement not in ("pre", "post"):
            raise ValueError(f"norm_placement={norm_placement!r}; expected 'pre' or 'post'")
        self.norm_placement, self.dropout = norm_placement, checked_rate(dropout)
        self.norm = norm
        self.layer = layer

    def forward(self, x: HiddenStates, *arguments: SublayerArgument) -> HiddenStates:
        """Process whole sequences; ``arguments`` of f after x are the lengths, or a memory and both lengths."""
        return self._add_residual(x, self.layer(self._normalized(x), *arguments))

    def attend(self, x: HiddenStates, *arguments: SublayerArgument) -> tuple[HiddenStates, Tensor | None]:
        """Return the output and f's weights, None if f has no ``attend``."""
        if not isinstance(self.layer, _Attending):
            return self(x, *arguments), None
        y, weights = self.layer.attend(self._normalized(x), *arguments)
        return self._add_residual(x, y), weights

    def step(self, x_t: HiddenStates, state: Any) -> tuple[HiddenStates, Any]:
        """Process one position; return its output and f's new state."""
        y_t, state = self.layer.step(self._normalized(x_t), state)
        return self._add_residual(x_t, y_t), state

    def explain(self, x: HiddenStates, *arguments: SublayerArgument) -> Explanation:
        """Return f's attention weights for ``x``."""
        explanation: Explanation = self.layer.explain(self._normalized(x), *arguments)
        return explanation

    def _normalized(self, x: HiddenStates) -> HiddenStates:
        return self.norm(x) if self.norm is not None and self.norm_placement == "pre" else x

    def _add_residual(self, x: HiddenStates, y: HiddenStates) -> HiddenStates:
        if isinstance(x, Streams):
            added = (dropout(new, self.dropout) for new in cast(Streams, y)) if self.training else cast(Streams, y)
            sums: HiddenStates = Streams(*(own + new for own, new in zip(x, added, strict=True)))
        else:
            sums = x + (dropout(cast(Tensor, y), self.dropout) if self.training else cast(Tensor, y))
        return self.norm(sums) if self.norm is not None and self.norm_placement == "post" else sums


class FeedForward(nn.Module):
    """y = W_2 dropout(relu(W_1 x + b_1)) + b_2 (Vaswani et al. 2017, section 3.3; dropout as in DuSell & Chiang 2024).

    Args:
        d_model: d.
        d_ff: f, the number of hidden units.
        dropout: rate at which hidden units are dropped in training.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = checked_rate(dropout)
        self.hidden = nn.Linear(d_model, d_ff)
        self.output = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Process each position independently."""
        hidden = F.relu(self.hidden(x))
        y: Tensor = self.output(dropout(hidden, self.dropout) if self.training else hidden)
        return y


@dataclass(frozen=True)
class BlockState(Selectable):
    """Incremental states of the sublayers; None for an absent sublayer."""

    attention: Any
    cross: Any
    stack: Any


class Block(nn.Module):
    """Self-attention, cross-attention, feed-forward, added stack, in this order, each with its residual connection.

    A sublayer that is None is absent, with its residual connection and norm. Stack attention replaces self-attention
    (DuSell & Chiang 2024, section 5), or is added after the feed-forward sublayer as H = S(H) + H, without norm and
    dropout (Li et al. 2024, equation 26).

    Hidden states are (B, T, d), or two streams of that shape with separate layer norms, for which the sublayers must be
    made (the Discrete Transformer paper, section 5).

    Args:
        d_model: d.
        attention: self-attention.
        cross: cross-attention to a memory.
        feedforward: a module applied to each position.
        stack: stack attention, added at the end.
        norm: layer norms before the sublayers ("pre") or after the residual sums ("post"), or none ("none").
        dropout: rate for the outputs of the first three sublayers.
        two_streams: whether the hidden states are two streams.
    """

    def __init__(
        self,
        d_model: int,
        attention: AttentionLayer | TwoStreamAttention | FeedForwardFirst | None = None,
        cross: CrossAttentionLayer | CrossTwoStreamAttention | None = None,
        feedforward: nn.Module | None = None,
        stack: AttentionLayer | None = None,
        norm: Literal["pre", "post", "none"] = "pre",
        dropout: float = 0.0,
        two_streams: bool = False,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post", "none"):
            raise ValueError(f"norm={norm!r}; expected 'pre', 'post' or 'none'")

        def residual(layer: Any) -> Residual | None:
            if layer is None:
                return None
            if norm == "none":
                return Residual(layer, dropout=dropout)
            return Residual(layer, layer_norm(d_model, two_streams), norm, dropout)

        self.attention = residual(attention)
        self.cross = residual(cross)
        self.feedforward = residual(feedforward)
        self.stack = None if stack is None else Residual(cast(nn.Module, stack))

    def forward(
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> HiddenStates:
        """Process whole sequences. ``memory`` is the input of cross-attention; a block without it ignores it."""
        for _, sublayer, arguments in self.sublayers(lengths, memory, memory_lengths):
            x = sublayer(x, *arguments)
        return x

    def attend(
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> tuple[HiddenStates, tuple[Tensor | None, Tensor | None]]:
        """Return the output and the weights of self-attention (B, H, T, T) and cross-attention (B, H, T, S).

        Weights are differentiable. They are None for attention that is absent or has no weights, such as stacks; those
        of self-attention are also None where an added stack mixes positions. ``receptive_field`` and
        ``decoder_receptive_fields`` take lists of them.
        """
        weights: dict[Sublayer | None, Tensor | None] = {}
        for name, sublayer, arguments in self.sublayers(lengths, memory, memory_lengths):
            x, weights[name] = sublayer.attend(x, *arguments)
        return x, (None if self.stack else weights.get("attention"), weights.get("cross"))

    def lacks_weights(self, own: Tensor | None, cross: Tensor | None) -> bool:
        """Return whether attention of this block has no weights, given those that ``attend`` returned."""
        attends = self.attention is not None or self.stack is not None
        return (own is None and attends) or (cross is None and self.cross is not None)

    def initial_state(
        self, batch_size: int, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> BlockState:
        """Return the states before the first step; the memory is projected here, once."""
        if self.cross is not None and memory is None:
            raise ValueError(_NO_MEMORY)
        return BlockState(
            None if self.attention is None else self.attention.layer.initial_state(batch_size),
            None if self.cross is None else self.cross.layer.initial_state(memory, memory_lengths),
            None if self.stack is None else self.stack.layer.initial_state(batch_size),
        )

    def step(self, x_t: HiddenStates, state: BlockState) -> tuple[HiddenStates, BlockState]:
        """Process one position; return its output and the new states."""
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
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> tuple[HiddenStates, list[Explanation]]:
        """Return the block's output and the attention weights of each sublayer."""
        explanations = []
        for name, sublayer, arguments in self.sublayers(lengths, memory, memory_lengths):
            if name is not None:
                explanations.append(replace(sublayer.explain(x, *arguments), sublayer=name))
            x = sublayer(x, *arguments)
        return x, explanations

    def sublayers(
        self, lengths: Tensor | None, memory: Memory | None, memory_lengths: Tensor | None
    ) -> list[tuple[Sublayer | None, Residual, tuple[SublayerArgument, ...]]]:
        """Return the sublayers that are present: the name of those of attention, and the arguments after x."""
        if self.cross is not None and memory is None:
            raise ValueError(_NO_MEMORY)
        sublayers: list[tuple[Sublayer | None, Residual | None, tuple[SublayerArgument, ...]]] = [
            ("attention", self.attention, (lengths,)),
            ("cross", self.cross, (memory, lengths, memory_lengths)),
            (None, self.feedforward, ()),
            ("stack", self.stack, (lengths,)),
        ]
        return [(name, sublayer, arguments) for name, sublayer, arguments in sublayers if sublayer is not None]
