"""A plugin: softmax attention over the last positions, with learned biases of the distances and of all projections."""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import nn

import structattn
from structattn.attention import Explanation
from structattn.settings import Mechanism, Settings

__version__ = "0.1"


class Window(Settings):
    """Softmax attention over a window."""

    attention: Literal["window"]
    size: int = Field(default=4, gt=0, description="positions that are seen, the own one included")


@dataclass(frozen=True)
class State:
    """Keys and values of the last positions."""

    past: torch.Tensor

    def select(self, indices):
        """Return the states of some members of the batch."""
        return State(self.past[:, indices])


class WindowAttention(nn.Module):
    """Softmax attention to the last positions, with a bias for each head and distance."""

    def __init__(self, d_model, num_heads, size):
        super().__init__()
        self.num_heads, self.size = num_heads, size
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))
        self.bias = nn.Parameter(torch.zeros(num_heads, size))

    def forward(self, x, lengths=None):
        """Process whole sequences."""
        x = without_padding(x, lengths)
        _, _, values = self.heads(x)
        return without_padding(self.output((self.weights(x) @ values).transpose(1, 2).flatten(2)), lengths)

    def initial_state(self, batch_size):
        """Return the state before the first position."""
        return State(self.bias.new_zeros(2, batch_size, self.num_heads, 0, len(self.query.weight) // self.num_heads))

    def step(self, x_t, state):
        """Process one position."""
        query, *new = self.heads(x_t[:, None])
        past = torch.cat([state.past, torch.stack(new)], 3)[:, :, :, -self.size :]
        weights = self.scores(query, past[0], past.shape[3] - 1).softmax(-1)
        return self.output((weights @ past[1]).transpose(1, 2).flatten(2))[:, 0], State(past)

    @torch.no_grad()
    def explain(self, x, lengths=None):
        """Return the weights."""
        weights = self.weights(without_padding(x, lengths)).transpose(1, 2).flatten(2)
        return Explanation(
            "window", without_padding(weights, lengths).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        )

    def heads(self, x):
        """Return queries, keys and values, (B, H, T, d)."""
        each = (self.query(x), self.key(x), self.value(x))
        return [y.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for y in each]

    def weights(self, x):
        """Return the weights of whole sequences."""
        query, key, _ = self.heads(x)
        return self.scores(query, key, 0).softmax(-1)

    def scores(self, query, key, first):
        """Return the scores, -inf outside the window; the first query has the position ``first``."""
        distances = torch.arange(query.shape[2])[:, None] + first - torch.arange(key.shape[2])
        seen = (distances >= 0) & (distances < self.size)
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5 + self.bias[:, distances.clamp(0, self.size - 1)]
        return scores.masked_fill(~seen, -torch.inf)


def without_padding(x, lengths):
    """Return (B, T, ...) with zeros past each length."""
    if lengths is None:
        return x
    padding = torch.arange(x.shape[1]) >= lengths[:, None]
    return x.masked_fill(padding[..., None], 0)


structattn.register(
    Mechanism(
        Window,
        self_attention=lambda model, settings, causal: WindowAttention(model.d_model, model.num_heads, settings.size),
        optional_size="size",
    )
)
