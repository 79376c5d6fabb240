"""A causal language model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.models.block import Block
from structattn.operators.common.dropout import dropout

_NEVER_PREDICTED = 2  # <pad> 0 and <bos> 1; every other id is a class


@dataclass(frozen=True)
class LanguageModelState:
    """How many tokens were read, and the state of each block: a value, never mutated."""

    position: int
    blocks: tuple[Any, ...]

    def select(self, indices: Int[Tensor, " chosen"]) -> "LanguageModelState":
        """The states of some members of the batch, in a new order."""
        return LanguageModelState(self.position, tuple(state.select(indices) for state in self.blocks))


class LanguageModel(nn.Module):
    """Embeddings times sqrt(d) plus positions, dropout, blocks, a final norm, and a logit for each possible next token.

    Untied, the input table has a row for each class, and <bos> takes the row of <eos>, which is never an input where
    <bos> is. Tied, table and output share their weights, the table has a row for every id, and there is no output bias.

    Args:
        vocabulary_size: all ids: <pad> 0, <bos> 1, <eos> 2, and the symbols.
        blocks: the layers, from the first to the last.
        width: d.
        positions: called with (first, count), gives what is added to those positions (count, d); None adds nothing.
        dropout: rate for the embedded tokens in training.
        tied: share the weights of input and output.
        final_norm: a layer norm after the last block, as blocks with norms before their sublayers need.
    """

    def __init__(
        self,
        vocabulary_size: int,
        blocks: Sequence[Block],
        width: int,
        positions: nn.Module | None = None,
        dropout: float = 0.0,
        tied: bool = False,
        final_norm: bool = True,
    ) -> None:
        super().__init__()
        classes = vocabulary_size - _NEVER_PREDICTED
        if classes < 1:
            raise ValueError(f"vocabulary_size={vocabulary_size}; expected at least 3: <pad>, <bos> and <eos>")
        self.dropout = dropout
        self.embedding = nn.Embedding(vocabulary_size if tied else classes, width)
        self.positions = positions
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = nn.LayerNorm(width) if final_norm else None
        self.output = None if tied else nn.Linear(width, classes)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time classes"]:
        """Logits for the token after each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: how many tokens of each sequence count; all where None. Logits past them mean nothing.
        """
        lengths = _lengths_that_matter(lengths, tokens.shape[1])
        x = self._embedded(tokens, 0)
        for block in self.blocks:
            x = block(x, lengths)
        return self._logits(x)

    def initial_state(self, batch_size: int) -> LanguageModelState:
        """The state before the first token, which is <bos>."""
        return LanguageModelState(0, tuple(block.initial_state(batch_size) for block in self._blocks()))

    def step(
        self, tokens: Int[Tensor, " batch"], state: LanguageModelState
    ) -> tuple[Float[Tensor, "batch classes"], LanguageModelState]:
        """Read one token more; logits for the next, and the state after it."""
        x = self._embedded(tokens[:, None], state.position)[:, 0]
        states = []
        for block, before in zip(self._blocks(), state.blocks, strict=True):
            x, after = block.step(x, before)
            states.append(after)
        return self._logits(x), LanguageModelState(state.position + 1, tuple(states))

    @torch.no_grad()
    def explain(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> list[Explanation]:
        """What each layer attends to, from the first to the last; dropout acts as it does in ``forward``."""
        x = self._embedded(tokens, 0)
        explanations = []
        for block in self._blocks():
            explanations.append(block.explain(x, lengths))
            x = block(x, lengths)
        return explanations

    def _blocks(self) -> Iterable[Block]:
        return self.blocks  # type: ignore[return-value]  # a ModuleList does not tell what it holds

    def _embedded(self, tokens: Tensor, first: int) -> Tensor:
        rows = tokens if self.output is None else (tokens - _NEVER_PREDICTED).clamp(min=0)
        x: Tensor = self.embedding(rows) * math.sqrt(self.embedding.embedding_dim)
        if self.positions is not None:
            x = x + self.positions(first, tokens.shape[1])
        return dropout(x, self.dropout, self.training)

    def _logits(self, x: Tensor) -> Tensor:
        x = x if self.final_norm is None else self.final_norm(x)
        if self.output is None:
            return F.linear(x, self.embedding.weight[_NEVER_PREDICTED:])
        logits: Tensor = self.output(x)
        return logits


def _lengths_that_matter(lengths: Tensor | None, time: int) -> Tensor | None:
    """None where nothing is padded and looking is cheap, so that no layer need mask anything."""
    if lengths is None or torch.compiler.is_compiling() or lengths.device.type != "cpu" or lengths.numel() == 0:
        return lengths
    return None if int(lengths.min()) == time else lengths
