"""The graphs of a model: an encoder, and a decoder step over explicit keys and values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from structattn.interop.export.onnx_attention import CrossAttention, Queries, SelfAttention
from structattn.models.block import Residual
from structattn.models.embedding import logits_of_ids


class Embedded(nn.Module):
    """Embeddings of tokens with added positions.

    Args:
        max_positions: rows of the table of positions.
    """

    def __init__(self, embedding: Any, max_positions: int) -> None:
        super().__init__()
        self.embedding = embedding
        added: Any = embedding.positions
        self.positions: Any
        self.register_buffer("positions", None if added is None else added(0, max_positions).detach().clone())

    def forward(self, tokens: Tensor, at: Tensor) -> Tensor:
        """Return the embeddings (B, N, d) of tokens at positions (N,)."""
        x: Tensor = self.embedding.token_embeddings(tokens) * self.embedding.factor
        return x if self.positions is None else x + self.positions.index_select(0, at)


class GraphBlock(nn.Module):
    """A block whose attention layers take explicit tensors.

    Args:
        block: of the model; ``onnx_attention`` lists its layers of attention.
    """

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.attention = _residual(SelfAttention, block.attention)
        self.cross = _residual(CrossAttention, block.cross)
        self.feedforward = block.feedforward

    def forward(
        self, x: Tensor, past: list[Tensor], queries: Queries, memory: list[Tensor], memory_queries: Queries | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the output (B, N, d) and the tensors of self-attention with the new positions."""
        y: Any = x
        present = past
        if self.attention is not None:
            y, present = self.attention.step(y, (past, queries))
        if self.cross is not None:
            y = self.cross(y, memory, memory_queries)
        return y if self.feedforward is None else self.feedforward(y), present


def _residual(graph: Callable[[Any], nn.Module], sublayer: Any) -> Residual | None:
    """Return a sublayer with the graph of its layer, in evaluation mode."""
    return None if sublayer is None else Residual(graph(sublayer.layer), sublayer.norm, sublayer.norm_placement)


class EncoderGraph(nn.Module):
    """(tokens (B, S), lengths (B,)) -> the memory (B, S, d) and the tensors of each cross-attention layer.

    Args:
        decoder: the blocks of the decoder, which project the memory.
        max_positions: the maximum of S.
    """

    def __init__(self, embedding: Any, layers: Any, decoder: list[GraphBlock], max_positions: int) -> None:
        super().__init__()
        self.embedded = Embedded(embedding, max_positions)
        self.blocks, self.final = nn.ModuleList(map(GraphBlock, layers.blocks)), layers.final
        self.decoder = nn.ModuleList(decoder)

    def forward(self, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the memory, then the tensors of the first cross-attention layer, and so on."""
        memory = self.hidden_states(tokens, lengths)
        crosses: list[Any] = [block.cross for block in self.decoder if block.cross is not None]
        return [memory, *(tensor for cross in crosses for tensor in cross.layer.project(memory))]

    def hidden_states(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the output of the last layer (B, S, d)."""
        at = torch.arange(tokens.shape[1])
        visible = (at < lengths[:, None])[:, None, None, :].expand(-1, 1, tokens.shape[1], -1)
        x = self.embedded(tokens, at)
        for block in self.blocks:
            empty = [x.new_zeros(x.shape[0], heads, 0, size) for heads, size in tensor_shapes(block.attention)]
            x, _ = block(x, empty, Queries(at, visible), [], None)
        memory: Tensor = self.final(x)
        return memory


class MaskedGraph(EncoderGraph):
    """(tokens (B, S), lengths (B,)) -> the logits of ids (B, S, vocabulary) at each position."""

    def __init__(self, model: Any, max_positions: int) -> None:
        super().__init__(model.embedding, model.layers, [], max_positions)
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the logits."""
        return [logits_of_ids(self.model._logits(self.hidden_states(tokens, lengths)))]


class DecoderGraph(nn.Module):
    """(tokens (B, N), past) -> logits of ids (B, N, vocabulary), present: a language model.

    N new tokens follow the positions in ``past``: 1 in a step, all in one call for a whole text.
    """

    def __init__(self, embedding: Any, layers: Any, logits: Any, max_positions: int) -> None:
        super().__init__()
        self.embedded = Embedded(embedding, max_positions)
        self.blocks, self.final = nn.ModuleList(map(GraphBlock, layers.blocks)), layers.final
        self.logits = logits

    def forward(self, tokens: Tensor, past: list[Tensor]) -> list[Tensor]:
        """Return the logits, then the tensors of the first self-attention layer with the new positions, and so on."""
        return self._run(tokens, None, [], past)

    def _run(self, tokens: Tensor, lengths: Tensor | None, memory: list[Tensor], past: list[Tensor]) -> list[Tensor]:
        before, new = past[0].shape[2], tokens.shape[1]
        at, keys = torch.arange(new) + before, torch.arange(before + new)
        own = Queries(at, (keys <= at[:, None])[None, None])
        cross = None if lengths is None else Queries(at, _inside(memory[0].shape[2], lengths, new))
        x, present = self.embedded(tokens, at), list[Tensor]()
        memories, pasts = iter(memory), iter(past)
        for block in self.blocks:
            kept = [next(pasts) for _ in tensor_shapes(block.attention)]
            x, tensors = block(x, kept, own, [next(memories) for _ in tensor_shapes(block.cross)], cross)
            present += tensors
        return [logits_of_ids(self.logits(self.final(x))), *present]


class CrossDecoderGraph(DecoderGraph):
    """(tokens (B, N), source lengths (B,), tensors of the memory, past) -> logits (B, N, vocabulary), present."""

    def forward(  # type: ignore[override]  # it takes a memory, too
        self, tokens: Tensor, lengths: Tensor, memory: list[Tensor], past: list[Tensor]
    ) -> list[Tensor]:
        """Return the logits, then the tensors of the first self-attention layer with the new positions, and so on."""
        return self._run(tokens, lengths, memory, past)


def tensor_shapes(sublayer: Any) -> list[tuple[int, int]]:
    """Return heads and size of each tensor of an attention layer; of none where it is absent."""
    return [] if sublayer is None else sublayer.layer.shapes()


def _inside(source: int, lengths: Tensor, new: int) -> Tensor:
    return (torch.arange(source) < lengths[:, None])[:, None, None, :].expand(-1, 1, new, -1)
