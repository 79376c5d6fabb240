"""The feed-forward sublayer."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.operators.common.dropout import dropout


class FeedForward(nn.Module):
    """y = W_2 dropout(relu(W_1 x + b_1)) + b_2 (Vaswani et al. 2017, section 3.3; dropout as in DuSell & Chiang 2024).

    Args:
        d_model: d.
        d_ff: f, the number of hidden units.
        dropout: rate at which hidden units are dropped in training.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden = nn.Linear(d_model, d_ff)
        self.output = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Process each position independently."""
        y: Tensor = self.output(dropout(F.relu(self.hidden(x)), self.dropout, self.training))
        return y
