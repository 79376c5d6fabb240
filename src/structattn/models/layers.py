"""A sequence of transformer blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from structattn.attention import Explanation, Streams
from structattn.models.block import Block, HiddenStates, Memory
from structattn.operators.common.checks import require_lengths
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Lengths


@dataclass(frozen=True)
class LayersState(Selectable):
    """The number of positions so far and the state of each block: an immutable value."""

    position: int
    blocks: tuple[Any, ...]


class Layers(nn.Module):
    """Blocks in sequence: an encoder, a decoder, or the body of a language model.

    Args:
        blocks: the layers.
        final: applied to the last block's output: a layer norm after pre-norm blocks, or a selection of the semantic
            stream after two-stream blocks; None: identity.
    """

    blocks: Any  # a ModuleList of Block; torch gives its items no type

    def __init__(self, blocks: Sequence[Block], final: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final = nn.Identity() if final is None else final

    def forward(
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> HiddenStates:
        """Process whole sequences. Outputs at padding are undefined."""
        lengths = _drop_full_lengths(lengths, x)
        memory_lengths = _drop_full_lengths(memory_lengths, memory, "memory_lengths")
        y: HiddenStates = self.final(self.body(x, lengths, memory, memory_lengths))
        return y

    def body(
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> HiddenStates:
        """Return the last block's output. It is undefined at padding."""
        for block in self.blocks:
            x = block(x, lengths, memory, memory_lengths)
        return x

    def hidden_states(self, x: HiddenStates, lengths: Lengths = None) -> HiddenStates:
        """Return the output for whole sequences, but both streams where ``final`` selects one of two.

        The syntactic stream is then that of the last block. Outputs at padding are undefined.
        """
        x = self.body(x, lengths)
        y: HiddenStates = self.final(x)
        return Streams(x.syntactic, y) if isinstance(x, Streams) and not isinstance(y, Streams) else y

    def attend(
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> tuple[HiddenStates, list[tuple[Tensor | None, Tensor | None]]]:
        """Return the output and the weights of each block (``Block.attend``)."""
        weights = []
        for block in self.blocks:
            x, block_weights = block.attend(x, lengths, memory, memory_lengths)
            weights.append(block_weights)
        return self.final(x), weights

    def initial_state(
        self, batch_size: int, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> LayersState:
        """Return the state before the first position."""
        memory_lengths = _drop_full_lengths(memory_lengths, memory, "memory_lengths")
        return LayersState(0, tuple(block.initial_state(batch_size, memory, memory_lengths) for block in self.blocks))

    def step(self, x_t: HiddenStates, state: LayersState) -> tuple[HiddenStates, LayersState]:
        """Process one position; return its output and the new state."""
        states = []
        for block, block_state in zip(self.blocks, state.blocks, strict=True):
            x_t, new_state = block.step(x_t, block_state)
            states.append(new_state)
        return self.final(x_t), LayersState(state.position + 1, tuple(states))

    @torch.no_grad()
    def explain(
        self, x: HiddenStates, lengths: Lengths = None, memory: Memory | None = None, memory_lengths: Lengths = None
    ) -> list[Explanation]:
        """Return the attention weights of each sublayer, first layer first; dropout is active in training mode."""
        explanations: list[Explanation] = []
        for index, block in enumerate(self.blocks):
            x, block_explanations = block.explain(x, lengths, memory, memory_lengths)
            explanations += [replace(explanation, layer=index) for explanation in block_explanations]
        return explanations


def _drop_full_lengths(lengths: Tensor | None, x: HiddenStates | None, name: str = "lengths") -> Tensor | None:
    """Return None if there is no padding, so that layers skip masking; checked only where that is cheap."""
    if lengths is None or x is None or torch.compiler.is_compiling():
        return lengths
    rows = x.semantic if isinstance(x, Streams) else x
    require_lengths(lengths, len(rows), name)
    if lengths.device.type != "cpu" or lengths.numel() == 0:
        return lengths
    return None if bool((lengths == rows.shape[1]).all()) else lengths  # one above T is refused by the layers
