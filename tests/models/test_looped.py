"""Looped transformers: the recursion written out, and how often which position is repeated."""

import math

import pytest
import torch

from structattn.attention import SoftmaxAttention
from structattn.loading.description import describe_model
from structattn.models import Block, FeedForward, LanguageModel, Layers, LoopedLayers
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError

BOS, VOCABULARY = 1, 11


def built(kind="transformer", **model):
    task = {"transformer": "language_modeling", "masked": "masked_language_modeling"}[kind]
    tree = {"kind": kind, "layers": 2, "d_model": 8, "d_ff": 8, "num_heads": 2} | model
    torch.manual_seed(1)
    settings = resolve_settings({"task": task, "data": "unused", "model": tree})
    made = build_model(settings.model, VOCABULARY).double().eval()
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return made


def texts(batch=3, time=9):
    tokens = torch.randint(3, VOCABULARY, (batch, time), generator=torch.Generator().manual_seed(2))
    return torch.cat([torch.full((batch, 1), BOS), tokens], 1)


@torch.no_grad()
def test_a_number_of_loops_is_a_deeper_model_with_shared_weights():
    model = built(layers=4, loops={"count": 3, "prelude": 1, "coda": 1})
    first, *repeated, last = model.layers.blocks
    embedded = model.embedding(texts(), 0, None)
    x = first(embedded)
    for _ in range(3):
        x = repeated[1](repeated[0](x + embedded))
    torch.testing.assert_close(model.layers(embedded), model.layers.coda.final(last(x)))


@torch.no_grad()
@pytest.mark.parametrize("injected", [True, False])
def test_each_position_is_repeated_for_the_length_of_its_prefix(injected):
    """A position alone, with those before it as they were left."""
    model = built(loops={"injected": injected})
    embedded = model.embedding(texts(time=6), 0, None)
    expected = []
    for t in range(7):
        x = embedded[:, : t + 1]
        for k in range(math.ceil(math.log2(t + 2))):
            y = model.layers.looped(x + embedded[:, : t + 1] if injected else x)
            counts = torch.tensor([math.ceil(math.log2(s + 2)) for s in range(t + 1)])
            x = torch.where((k < counts)[:, None], y, x)
        expected.append(x[:, -1])
    torch.testing.assert_close(model.layers(embedded), model.layers.coda.final(torch.stack(expected, 1)))


@torch.no_grad()
def test_a_bidirectional_text_is_repeated_for_its_length():
    model, tokens = built("masked", loops="log"), texts(time=7)
    x = embedded = model.embedding(tokens, 0, None)
    for _ in range(4):  # ceil(log2(8 + 1))
        x = model.layers.looped(x + embedded)
    torch.testing.assert_close(model.layers(embedded), model.layers.coda.final(x))


@torch.no_grad()
@pytest.mark.parametrize("with_lengths", [True, False])
@pytest.mark.parametrize("kind", ["transformer", "masked"])
def test_repetitions_are_bounded_for_each_text_of_a_batch(kind, with_lengths):
    """All positions of a bidirectional text have the R of the bound, those of a causal one at most that."""
    layers = built(kind, loops="log").layers
    x = torch.rand(3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    lengths, counted = torch.tensor([9, 7, 4]) if with_lengths else torch.tensor([9, 9, 9]), torch.tensor([2, 7, 4])
    found = layers(x, lengths if with_lengths else None, counted)
    for row, (length, bound) in enumerate(zip(lengths.tolist(), counted.tolist(), strict=True)):
        y = embedded = x[row : row + 1, :length]
        for k in range(bound.bit_length()):
            last = torch.tensor([min(t + 1 if kind == "transformer" else length, bound) for t in range(length)])
            active = torch.tensor([k < p.bit_length() for p in last.tolist()])[:, None]
            y = torch.where(active, layers.looped(y + embedded), y)
        torch.testing.assert_close(found[row, :length], layers.coda(y)[0])


def test_weights_of_positions_that_keep_their_state_are_zero():
    model, tokens = built(loops="log"), texts(batch=1, time=3)
    logits, weights = model.attend(tokens)
    records = model.explain(tokens)
    torch.testing.assert_close(logits, model(tokens))
    assert [record.layer for record in records] == list(range(6))  # three repetitions of two layers
    sums = torch.stack([record.weights[0].sum(-1).mean(0) for record in records[::2]])
    expected = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(sums, expected)
    for record, other in zip(records, weights, strict=True):
        torch.testing.assert_close(record.weights, other)


@torch.no_grad()
def test_writing_to_the_output_of_a_step_leaves_its_state():
    loop = LoopedLayers(
        Layers([]), Layers([Block(8, SoftmaxAttention(8, 2), norm="post")]), Layers([]), "log", injected=False
    )
    y, state = loop.step(torch.rand(2, 8), loop.initial_state(2))
    x = torch.rand(2, 8)
    expected, _ = loop.step(x, state)
    y.zero_()
    assert torch.equal(loop.step(x, state)[0], expected)


@pytest.mark.parametrize("count", [2, "log"])
def test_lengths_and_counts_out_of_range_are_refused(count):
    loop = LoopedLayers(Layers([]), Layers([Block(4, feedforward=FeedForward(4, 4))]), Layers([]), count)
    for length in (-1, 3):
        with pytest.raises(ValueError, match="lengths"):
            loop(torch.rand(1, 2, 4), torch.tensor([length]))
    for name in ("count", "factor", "maximum"):
        for wrong in (-1, 1.5, "logs"):
            with pytest.raises(ValueError, match=f"{name}={wrong!r}; expected a whole number of at least 0"):
                LoopedLayers(Layers([]), Layers([]), Layers([]), **{"count": "log", name: wrong})


def test_loops_have_no_parameters_and_are_described():
    looped, plain = built(loops=7), built()
    assert isinstance(looped, LanguageModel)
    assert isinstance(looped.layers, LoopedLayers)
    assert sum(p.numel() for p in looped.parameters()) == sum(p.numel() for p in plain.parameters())
    model = {"layers": 3, "loops": {"factor": 2, "maximum": 5, "prelude": 1}}
    settings = resolve_settings({"task": "language_modeling", "data": "unused", "model": model}).model
    assert describe_model(settings) == "d 32: softmax, (2 softmax) x 2 log n, at most 5"


@pytest.mark.parametrize(
    ("loops", "message"),
    [
        (0, r"model\.loops\.count: expected 'log' or a number from 1 to 1000"),
        ("logn", r"model\.loops\.count: expected 'log' or a number from 1 to 1000, got 'logn'"),
        ({"count": 3, "factor": 2}, "factor and maximum are for count: log; count is 3"),
        ({"prelude": 1, "coda": 1}, "prelude 1 and coda 1 leave none of 2 layers to repeat"),
    ],
)
def test_impossible_loops_are_refused(loops, message):
    with pytest.raises(SettingsError, match=message):
        built(loops=loops)
