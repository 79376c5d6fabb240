"""Blocks one after another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from structattn.attention import Explanation, Streams
from structattn.models.block import Block
from structattn.models.residual import Memory, Vectors


@dataclass(frozen=True)
class LayersState:
    """How many positions were read, and the state of each block: a value, never mutated."""

    position: int
    blocks: tuple[Any, ...]

    def select(self, indices: Int[Tensor, " chosen"]) -> "LayersState":
        """The states of some members of the batch, in a new order."""
        return LayersState(self.position, tuple(state.select(indices) for state in self.blocks))


class Layers(nn.Module):
    """Blocks from the first to the last: an encoder, a decoder, or the body of a language model.

    Args:
        blocks: the layers.
        final: what is made of the last block's output: a layer norm where the blocks have theirs before the sublayers,
            the semantic stream alone where two streams have come to their end; None: nothing.
    """

    def __init__(self, blocks: Sequence[Block], final: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final = final

    def forward(
        self,
        x: Vectors,
        lengths: Int[Tensor, " batch"] | None = None,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Vectors:
        """A whole sequence. What comes out past a length means nothing."""
        lengths = _lengths_that_matter(lengths, x)
        memory_lengths = _lengths_that_matter(memory_lengths, memory)
        for block in self.blocks:
            x = block(x, lengths, memory, memory_lengths)
        return self._ended(x)

    def attend(
        self, x: Vectors, lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Vectors, list[tuple[Tensor | None, Tensor | None]]]:
        """What ``forward`` gives, and the weights of each block (``Block.attend``); of layers without a memory."""
        weights = []
        for block in self._blocks():
            x, of_block = block.attend(x, lengths)
            weights.append(of_block)
        return self._ended(x), weights

    def initial_state(
        self,
        batch_size: int,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> LayersState:
        """The state before the first position."""
        memory_lengths = _lengths_that_matter(memory_lengths, memory)
        return LayersState(
            0, tuple(block.initial_state(batch_size, memory, memory_lengths) for block in self._blocks())
        )

    def step(self, x_t: Vectors, state: LayersState) -> tuple[Vectors, LayersState]:
        """One more position, and the state after it."""
        states = []
        for block, before in zip(self._blocks(), state.blocks, strict=True):
            x_t, after = block.step(x_t, before)
            states.append(after)
        return self._ended(x_t), LayersState(state.position + 1, tuple(states))

    @torch.no_grad()
    def explain(
        self,
        x: Vectors,
        lengths: Int[Tensor, " batch"] | None = None,
        memory: Memory | None = None,
        memory_lengths: Int[Tensor, " batch"] | None = None,
    ) -> list[Explanation]:
        """What each layer's sublayers attend to, from the first to the last; dropout acts as it does in ``forward``."""
        explanations: list[Explanation] = []
        for index, block in enumerate(self._blocks()):
            x, of_block = block.explain(x, lengths, memory, memory_lengths)
            explanations += [replace(explanation, layer=index) for explanation in of_block]
        return explanations

    def _blocks(self) -> Iterable[Block]:
        return self.blocks  # type: ignore[return-value]  # a ModuleList does not tell what it holds

    def _ended(self, x: Vectors) -> Vectors:
        return x if self.final is None else self.final(x)


def _lengths_that_matter(lengths: Tensor | None, x: Vectors | None) -> Tensor | None:
    """None where nothing is padded and looking is cheap, so that no layer need mask anything."""
    if lengths is None or x is None or torch.compiler.is_compiling():
        return lengths
    if lengths.device.type != "cpu" or lengths.numel() == 0:
        return lengths
    time = (x.semantic if isinstance(x, Streams) else x).shape[1]
    return None if int(lengths.min()) == time else lengths
