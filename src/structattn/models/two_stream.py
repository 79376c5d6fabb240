"""The two-stream layer of the Discrete Transformer paper's equations."""

from jaxtyping import Int
from torch import Tensor, nn

from structattn.attention import Streams, TwoStreamAttention
from structattn.models.block import FeedForward
from structattn.models.streams import EachStream


class SimplifiedTwoStreamBlock(nn.Module):
    """The layer of sections 3 and 5, for comparison with the equations; models consist of ``Block``s instead.

    B = FFN_g(g), C = FFN_h(h); g' = g + A V and h' = h + V'_z with K, V, Q from B and V' from C: the feed-forward
    sublayers come first and have no residual connection, and there are no norms. The equations have no output
    projections either; those of ``attention`` are used as given.

    Args:
        d_model: d, of either stream.
        attention: self-attention.
        d_ff: hidden units of either stream's feed-forward maps.
    """

    def __init__(self, d_model: int, attention: TwoStreamAttention, d_ff: int) -> None:
        super().__init__()
        self.feedforward = EachStream(*(FeedForward(d_model, d_ff) for _ in range(2)))
        self.attention = attention

    def forward(self, x: Streams, lengths: Int[Tensor, " batch"] | None = None) -> Streams:
        """Process whole sequences of streams (B, T, d)."""
        y = self.attention(self.feedforward(x), lengths)
        return Streams(x.syntactic + y.syntactic, x.semantic + y.semantic)
