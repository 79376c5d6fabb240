"""Script that registers a mechanism, the mean of all positions so far, and trains a model with it.

The argument is the folder to work in. The comments name the files to which a mechanism adds these lines.
"""

# ruff: noqa: E402 - the classes of layers are derived from the entries when they are imported

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import torch
from torch import nn

from structattn.attention import AttentionLayer, Explanation
from structattn.settings import mechanisms
from structattn.settings.base import Settings

# --- attention/mean.py


@dataclass(frozen=True)
class MeanState:
    total: torch.Tensor
    count: int

    def select(self, indices):
        return MeanState(self.total[indices], self.count)


class MeanAttention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.projection = nn.Linear(d_model, d_model)

    def forward(self, x, lengths=None):
        time = torch.arange(1, x.shape[1] + 1)
        y = self.projection(x).cumsum(1) / time[:, None]
        return y if lengths is None else y.masked_fill((time > lengths[:, None])[..., None], 0)

    def initial_state(self, batch_size):
        return MeanState(self.projection.weight.new_zeros(batch_size, len(self.projection.weight)), 0)

    def step(self, x_t, state):
        after = MeanState(state.total + self.projection(x_t), state.count + 1)
        return after.total / after.count, after

    def explain(self, x, lengths=None):
        batch, time, _ = x.shape
        weights = torch.ones(time, time).tril() / torch.arange(1, time + 1)[:, None]
        return Explanation("mean", weights.expand(batch, 1, time, time))


# --- settings/mechanisms.py


class Mean(Settings):
    """Mean of the positions so far."""

    attention: Literal["mean"] = "mean"


ENTRY = mechanisms.Mechanism(Mean, added_stack=True, label="mean attention")
mechanisms.MECHANISMS = MappingProxyType({**mechanisms.MECHANISMS, ENTRY.name: ENTRY})

# --- models/builders/mechanisms.py

from structattn.models.builders import mechanisms as builders

builders.STACK_BUILDERS = MappingProxyType({**builders.STACK_BUILDERS, Mean: lambda d_model, _: MeanAttention(d_model)})

# --- training

from structattn.cli.main import main
from structattn.loading.description import describe_model
from structattn.loading.runs import load
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language


def train(folder):
    sizes = FormalLanguageSizes(train=40, valid=10, test_per_length=1, train_lengths=(5, 9), test_lengths=(5, 9))
    prepare_formal_language(folder / "data", "marked-reversal", seed=1, sizes=sizes)
    (folder / "run.yaml").write_text(f"task: formal_language\ndata: {folder / 'data'}\n")
    overrides = ["model.layers=2xmean.1+mean", "model.d_model=8", "training.max_updates=3"]
    sys.argv = ["structattn", "train", str(folder / "run.yaml"), *overrides, "--output", str(folder / "run")]
    with contextlib.suppress(SystemExit):  # the run cannot be loaded if the command fails
        main()


if __name__ == "__main__":
    assert isinstance(MeanAttention(8), AttentionLayer)
    folder = Path(sys.argv[1])
    train(folder)
    run = load(folder / "run")
    assert [type(module) for module in run.model.modules()].count(MeanAttention) == 3
    print(describe_model(run.settings.model))
