"""The feed-forward sublayer."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.operators.common.dropout import dropout


class FeedForward(nn.Module):
    """y = W_2 dropout(relu(W_1 x + b_1)) + b_2 (Vaswani et al. 2017, section 3.3; dropout as in DuSell & Chiang 2024).

    Args:
        width: d.
        hidden_width: f, the number of hidden units.
        dropout: rate at which hidden units are dropped in training.
    """

    def __init__(self, width: int, hidden_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden = nn.Linear(width, hidden_width)
        self.output = nn.Linear(hidden_width, width)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Each position for itself."""
        y: Tensor = self.output(dropout(F.relu(self.hidden(x)), self.dropout, self.training))
        return y
