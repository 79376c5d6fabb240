"""StackTrans over depth: the state of a stack goes from layer to layer, and is empty at each position."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from structattn.attention import Explanation, StackTransAttention
from structattn.models.block import Block
from structattn.models.layers import Layers, LayersState
from structattn.support.shapes import Float, Lengths


class DepthStackLayers(Layers):
    """Layers with a step of StackTrans after each block: (x, cells) <- stack(block(x), cells), as published.

    A position starts with empty stacks, so that the stack holds at most as many items as there are layers, whatever the
    length of the text. Its first reading is of what was pushed at that step. Cost: that of ``StackTransAttention.step``
    for each position and layer; states of decoding hold nothing of it.

    Args:
        blocks: the layers, without cross-attention.
        stacks: one for each block.
        final: see ``Layers``.
    """

    stacks: Any  # a ModuleList of StackTransAttention

    def __init__(
        self, blocks: Sequence[Block], stacks: Sequence[StackTransAttention], final: nn.Module | None = None
    ) -> None:
        super().__init__(blocks, final)
        self.stacks = nn.ModuleList(stacks)

    def xavier_matrices(self) -> list[Tensor]:
        """Return the matrices of all stacks, see ``XavierInitialized``."""
        return [matrix for stack in self.stacks for matrix in stack.xavier_matrices()]

    def body(self, x: Any, lengths: Lengths = None, *_: Any) -> Float[Tensor, "batch time d_model"]:
        """Return the last stack's output. It is undefined at padding."""
        state = None
        for block, stack in zip(self.blocks, self.stacks, strict=True):
            x, state = _through(stack, block(x, lengths), state)
        y: Tensor = x
        return y

    def attend(self, x: Any, lengths: Lengths = None, *_: Any) -> tuple[Any, list[tuple[Tensor | None, Tensor | None]]]:
        """Return the output and the weights of each block (``Block.attend``)."""
        weights, state = [], None
        for block, stack in zip(self.blocks, self.stacks, strict=True):
            x, block_weights = block.attend(x, lengths)
            weights.append(block_weights)
            x, state = _through(stack, x, state)
        return self.final(x), weights

    def step(self, x_t: Any, state: LayersState) -> tuple[Any, LayersState]:
        """Process one position; return its output and the new state of the blocks."""
        states, cells = [], None
        for block, stack, block_state in zip(self.blocks, self.stacks, state.blocks, strict=True):
            x_t, new_state = block.step(x_t, block_state)
            states.append(new_state)
            x_t, cells = _through(stack, x_t, cells)
        return self.final(x_t), LayersState(state.position + 1, tuple(states))

    @torch.no_grad()
    def explain(self, x: Any, lengths: Lengths = None, *_: Any) -> list[Explanation]:
        """Return the attention weights of the blocks; stacks over depth have no weights over positions."""
        explanations: list[Explanation] = []
        state = None
        for index, (block, stack) in enumerate(zip(self.blocks, self.stacks, strict=True)):
            x, found = block.explain(x, lengths)
            explanations += [replace(explanation, layer=index) for explanation in found]
            x, state = _through(stack, x, state)
        return explanations


def _through(
    stack: StackTransAttention, x: Float[Tensor, "*batch d_model"], state: Any
) -> tuple[Float[Tensor, "*batch d_model"], Any]:
    """Return the output of one step with its residual connection, and the new state; positions are like a batch."""
    flat = x.reshape(-1, x.shape[-1])
    y, state = stack.step(flat, stack.initial_state(len(flat)) if state is None else state)
    return x + y.view(x.shape), state
