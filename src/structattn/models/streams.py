"""Modules for two streams: one that decides where to look, g, and one that carries what is read, h."""

from torch import Tensor, nn

from structattn.attention import Streams


class EachStream(nn.Module):
    """One module for each stream, so that neither sees the other.

    Args:
        syntactic: for g.
        semantic: for h.
    """

    def __init__(self, syntactic: nn.Module, semantic: nn.Module) -> None:
        super().__init__()
        self.syntactic, self.semantic = syntactic, semantic

    def forward(self, x: Streams) -> Streams:
        """What each makes of its stream."""
        return Streams(self.syntactic(x.syntactic), self.semantic(x.semantic))


class SemanticStream(nn.Module):
    """h alone, for what predicts by it (the Discrete Transformer paper, section 5).

    Args:
        norm: applied to h; None leaves it as it is.
    """

    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Streams) -> Tensor:
        """What is left of both streams."""
        return x.semantic if self.norm is None else self.norm(x.semantic)


def layer_norm(d_model: int, two_streams: bool) -> nn.Module:
    """A layer norm, or one for each stream."""
    return EachStream(nn.LayerNorm(d_model), nn.LayerNorm(d_model)) if two_streams else nn.LayerNorm(d_model)
