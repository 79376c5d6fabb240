"""Random inputs of the nondeterministic stack, and its judge: the enumeration of all runs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    push: Tensor
    replace: Tensor
    pop: Tensor
    values: Tensor
    bottom: Tensor

    @property
    def logits(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.push, self.replace, self.pop

    @property
    def all(self) -> tuple[Tensor, ...]:
        return (*self.logits, self.values, self.bottom)

    def to(self, dtype: torch.dtype) -> "Inputs":
        return Inputs(*(x.to(dtype) for x in self.all))


@pytest.fixture
def random_inputs() -> Callable[..., Inputs]:
    def make(batch, time, states, symbols, vector=3, scale=1.0, seed=0) -> Inputs:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        transition = (batch, time, states, symbols, states, symbols)
        return Inputs(
            scale * draw(*transition),
            scale * draw(*transition),
            scale * draw(*transition[:-1]),
            draw(batch, time, vector),
            draw(vector),
        )

    return make


@dataclass(frozen=True)
class Run:
    """A run of one sequence: its log-weight, its steps, its stack of (symbol, time of push) from bottom to top."""

    log_weight: float
    steps: tuple[tuple[int, int, int], ...]  # action, state after, symbol on top after
    transitions: tuple[tuple[int, ...], ...]  # action and indices of the logit
    state: int
    stack: tuple[tuple[int, int], ...]


def extended(run: Run, t: int, push: Tensor, replace: Tensor, pop: Tensor, window: float) -> list[Run]:
    """Every run that is one step longer; t is counted from 0, the times of pushes from 1."""
    q, (x, when) = run.state, run.stack[-1]
    result = []
    for r in range(push.shape[1]):
        for y in range(push.shape[2]):
            for action, logits, stack in (
                (0, push, (*run.stack, (y, t + 1))),
                (1, replace, (*run.stack[:-1], (y, when))),
            ):
                result.append(_step(run, float(logits[t, q, x, r, y]), action, r, y, (action, q, x, r, y), stack))
        if len(run.stack) > 1 and t + 1 - when <= window:
            below = run.stack[:-1]
            result.append(_step(run, float(pop[t, q, x, r]), 2, r, below[-1][0], (2, q, x, r), below))
    return result


def _step(run: Run, logit: float, action: int, state: int, symbol: int, transition: tuple, stack: tuple) -> Run:
    return Run(
        run.log_weight + logit, (*run.steps, (action, state, symbol)), (*run.transitions, transition), state, stack
    )


@pytest.fixture
def all_runs() -> Callable[..., list[list[Run]]]:
    """For logits of one sequence without a batch axis: the runs that end at time 0, 1, .., n."""

    def enumerate_runs(push: Tensor, replace: Tensor, pop: Tensor, window: float = math.inf) -> list[list[Run]]:
        runs = [[Run(0.0, (), (), 0, ((0, 0),))]]
        for t in range(len(push)):
            runs.append([longer for run in runs[-1] for longer in extended(run, t, push, replace, pop, window)])
        return runs

    return enumerate_runs
