"""The LSTM of the C2W paper, with peepholes and coupled input and forget gates."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class CoupledLstm(nn.Module):
    """An LSTM with peepholes and coupled gates (Ling et al. 2015): one layer, batch first, called like torch's.

        i_t = sigmoid(W_i x_t + U_i h_{t-1} + p_i * c_{t-1} + b_i)
        c_t = (1 - i_t) * c_{t-1} + i_t * tanh(W_c x_t + U_c h_{t-1} + b_c)
        o_t = sigmoid(W_o x_t + U_o h_{t-1} + p_o * c_t + b_o)
        h_t = o_t * tanh(c_t)

    Peepholes are diagonal: one weight per hidden unit.

    Args:
        inputs: size of the inputs.
        hidden_size: of the state.
    """

    def __init__(self, inputs: int, hidden_size: int) -> None:
        super().__init__()
        self.input, self.recurrent = (
            nn.Linear(inputs, 3 * hidden_size),
            nn.Linear(hidden_size, 3 * hidden_size, bias=False),
        )
        self.peepholes = nn.Parameter(torch.zeros(2, hidden_size))

    def forward(
        self, x: Float[Tensor, "batch time inputs"]
    ) -> tuple[Float[Tensor, "batch time units"], Float[Tensor, "batch units"]]:
        """Return the states h of all steps and the last c, starting from zeros."""
        input_peephole, output_peephole = self.peepholes
        hidden = cell = x.new_zeros(x.shape[0], self.recurrent.in_features)
        states = []
        for gates in self.input(x).unbind(1):
            for_input, for_cell, for_output = (gates + self.recurrent(hidden)).chunk(3, dim=1)
            opened = torch.sigmoid(for_input + input_peephole * cell)
            cell = cell + opened * (torch.tanh(for_cell) - cell)
            hidden = torch.sigmoid(for_output + output_peephole * cell) * torch.tanh(cell)
            states.append(hidden)
        return torch.stack(states, dim=1), cell
