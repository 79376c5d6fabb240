"""Decay attention: an exponential moving average of the positions so far."""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import nn

import structattn
from structattn.attention import Explanation
from structattn.settings import Mechanism, Settings

__version__ = "1.0"


class Decay(Settings):
    """Exponential moving average of the positions so far."""

    attention: Literal["decay"]
    half_life: float = Field(default=2.0, gt=0, description="initial half-life of the weights, in positions")


@dataclass(frozen=True)
class DecayState:
    """The average after some steps, and how many steps there were."""

    average: torch.Tensor
    steps: int

    def select(self, indices):
        return DecayState(self.average[indices], self.steps)


class DecayAttention(nn.Module):
    """y_t = W z_t + b with z_1 = x_1 and z_t = λ z_(t-1) + (1 - λ) x_t."""

    def __init__(self, d_model, half_life):
        super().__init__()
        self.projection = nn.Linear(d_model, d_model)
        self.logit = nn.Parameter(torch.logit(torch.tensor([0.5 ** (1 / half_life)])))  # FSDP shards no scalars

    def forward(self, x, lengths=None):
        return without_padding(self.projection(self.weights(x.shape[1]) @ without_padding(x, lengths)), lengths)

    def initial_state(self, batch_size):
        return DecayState(self.projection.weight.new_zeros(batch_size, self.projection.in_features), 0)

    def step(self, x_t, state):
        rate = torch.sigmoid(self.logit)
        average = x_t.clone() if state.steps == 0 else rate * state.average + (1 - rate) * x_t
        return self.projection(average), DecayState(average, state.steps + 1)

    @torch.no_grad()
    def explain(self, x, lengths=None):
        weights = self.weights(x.shape[1]).expand(len(x), -1, -1)
        return Explanation("decay", without_padding(weights, lengths)[:, None])

    def xavier_matrices(self):
        return [self.projection.weight]

    def weights(self, time):
        rate = torch.sigmoid(self.logit)
        steps = torch.arange(time, device=rate.device)
        distance = (steps[:, None] - steps).clamp(min=0)
        return (rate**distance * torch.where(steps == 0, 1, 1 - rate)).tril()


def without_padding(x, lengths):
    """Set what is at or past the end of each sequence to zero, NaN included."""
    if lengths is None:
        return x
    padding = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    return x.masked_fill(padding[..., None], 0)


structattn.register(
    Mechanism(
        Decay,
        layer=lambda d_model, settings: DecayAttention(d_model, settings.half_life),
        added_stack=True,
        optional_size="half_life",
    )
)
