"""Models are accelerated while other threads accelerate theirs or draw random numbers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from structattn import accelerate
from structattn.attention import SoftmaxAttention
from structattn.models import Block, FeedForward, Layers

D = 16


@pytest.fixture
def other():
    with ThreadPoolExecutor(1) as thread:
        yield thread


class DropoutOfTorch(nn.Module):
    """A sublayer without a kernel that draws from torch's global generator, after a call of a function."""

    def __init__(self, before):
        super().__init__()
        self.before = [before]

    def __deepcopy__(self, memo):
        return DropoutOfTorch(*self.before)

    def forward(self, x):
        self.before[0]()
        return F.dropout(x, 0.5, self.training)


def layers(feedforward):
    return Layers([Block(D, SoftmaxAttention(D, 4, dropout=0.1), feedforward=feedforward, dropout=0.1)])


def test_the_generator_is_left_to_other_threads(monkeypatch, caplog, other):
    forward, drawn = FeedForward.forward, []

    def draw_and_forward(self, x):
        drawn.append(other.submit(torch.rand, 1).result())
        return forward(self, x)

    model = layers(FeedForward(D, 24, 0.2))
    monkeypatch.setattr(FeedForward, "forward", draw_and_forward)
    torch.manual_seed(7)
    assert accelerate(model) is not model
    assert not caplog.records
    torch.manual_seed(7)
    assert drawn
    assert drawn == [torch.rand(1) for _ in drawn]


def test_layers_that_draw_themselves_are_compared_one_after_the_other(monkeypatch, caplog, other):
    """The generator was left changed if another comparison began within one and ended after it."""
    within, other_within, ended, seeded = Event(), Event(), Event(), []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)

    def wait_for_other():
        if not within.is_set():
            within.set()
            other_within.wait(0.5)  # in vain, unless both are compared at once

    def wait_for_end():
        other_within.set()
        ended.wait(5)

    models = [layers(DropoutOfTorch(wait)) for wait in (wait_for_other, wait_for_end)]

    def accelerate_other():
        within.wait()
        return accelerate(models[1])

    torch.default_generator.manual_seed(7)
    before = torch.get_rng_state()
    result = other.submit(accelerate_other)
    assert accelerate(models[0]) is not models[0]
    ended.set()
    assert result.result() is not models[1]
    assert torch.equal(torch.get_rng_state(), before)
    assert not caplog.records
    assert not seeded


def test_a_number_that_another_thread_draws_in_between_is_no_difference(caplog, other):
    drawn = []

    def draw_once():
        if not drawn:
            drawn.append(other.submit(torch.rand, 1).result())

    model = layers(DropoutOfTorch(draw_once))
    assert accelerate(model) is not model
    assert not caplog.records
