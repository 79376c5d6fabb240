"""StackTrans over time and over depth: the equations written out for one stack, parameter counts."""

import math

import pytest
import torch

from structattn.attention import StackTransAttention
from structattn.models.block import Block
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.operators import SuperpositionAction
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.errors import UsageError

VARIANTS = [(form, read) for form in ("released", "paper") for read in ("after", "before")]


def layer_of(form, read="after", heads=1):
    torch.manual_seed(3)
    layer = StackTransAttention(4, 3 * heads, heads, depth=2, form=form, read=read).double()
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    return layer


def size_of(layer):
    return sum(parameter.numel() for parameter in layer.parameters())


def written_out(layer, x):
    """One sequence and one stack, cell by cell."""
    size, readings = 3, []
    cells, mask = [torch.zeros(size).double()] * 2, [0.0, 0.0]
    for x_t in x:
        rows = layer.projection.weight @ x_t
        value = rows[-size:]
        logits = rows[:3] if layer.form == "released" else layer.actions[0] @ value
        push, no_op, pop = torch.softmax(logits, 0)
        old = cells, mask
        cells = [
            push * value + no_op * cells[0] + pop * cells[1],
            push * cells[0] + no_op * cells[1],  # what was in the last cell is lost; below it are zeros
        ]
        mask = [push + no_op * mask[0] + pop * mask[1], push * mask[0] + no_op * mask[1]]
        seen, filled = (cells, mask) if layer.read == "after" else old
        if layer.form == "released":
            exponentials = [m * math.exp(layer.score @ cell) for cell, m in zip(seen, filled, strict=True)]
            exponentials.append(math.exp(layer.score @ layer.null))
            seen = [*seen, layer.null]
        else:
            exponentials = [math.exp(layer.score @ (m * cell)) for cell, m in zip(seen, filled, strict=True)]
        total = sum(exponentials)
        reading = sum(weight / total * cell for weight, cell in zip(exponentials, seen, strict=True))
        readings.append(layer.output.weight @ reading + math.expm1(layer.log_gain) * x_t)
    return torch.stack(readings)


@torch.no_grad()
@pytest.mark.parametrize(("form", "read"), VARIANTS)
def test_is_what_the_equations_say(form, read):
    layer, x = layer_of(form, read), torch.randn(2, 6, 4).double()
    torch.testing.assert_close(layer(x), torch.stack([written_out(layer, each) for each in x]))


@torch.no_grad()
@pytest.mark.parametrize("form", ["released", "paper"])
def test_explained_weights_give_the_readings(form):
    """The null cell times its weight, and the pushed vectors times theirs, are what is projected."""
    layer, x = layer_of(form, heads=2), torch.randn(2, 6, 4).double()
    weights = layer.explain(x).weights
    _, values = layer._actions_and_values(x)
    readings = (weights[..., 1:] @ values.transpose(1, 2)).transpose(1, 2)
    if layer.null is not None:
        readings = readings + weights[..., :1].transpose(1, 2) * layer.null
    torch.testing.assert_close(layer.output(readings.flatten(2)) + torch.expm1(layer.log_gain) * x, layer(x))


@torch.no_grad()
@pytest.mark.parametrize("place", ["stack", "attention"])
def test_the_gain_is_of_the_residual_only_in_added_stacks(place):
    layer, x = layer_of("released"), torch.randn(2, 6, 4).double()
    block = Block(4, norm="pre", **{place: layer}).double()
    gain = layer.log_gain.exp()
    seen = x if place == "stack" else block.attention.norm(x)
    projected = layer(seen) - (gain - 1) * seen  # W_o r
    expected = gain * x + projected if place == "stack" else x + (gain - 1) * seen + projected
    torch.testing.assert_close(block(x), expected)
    assert torch.allclose(block(x), gain * x + projected) == (place == "stack")


def test_parameter_counts():
    for d_model, expected in ((32, 4513), (64, 8993), (960, 134_433)):
        assert size_of(StackTransAttention(d_model)) == expected  # d (3 H + 2 H s) + 2 s + 1
        assert size_of(StackTransAttention(d_model, form="paper")) == 2 * 64 * d_model + 3 * 64 + 64 + 1


def test_an_empty_stack_reads_the_null_cell():
    layer = layer_of("released")
    with torch.no_grad():
        layer.projection.weight.zero_()
        layer.projection.weight[SuperpositionAction.POP] = 1e3
    x = torch.ones(1, 3, 4).double()
    expected = layer.output(layer.null) + torch.expm1(layer.log_gain) * x
    torch.testing.assert_close(layer(x), expected)


@torch.no_grad()
def test_an_empty_stack_reads_the_null_cell_however_low_its_score_is():
    layer = StackTransAttention(4, 2, 1, depth=3, read="before").eval()
    layer.null.fill_(10.0)
    layer.score.fill_(-10.0)  # its exponential beside that of an empty cell's score, 0, is 0
    torch.testing.assert_close(layer(torch.ones(1, 1, 4))[0, 0], layer.output(layer.null))


def test_interventions_know_where_the_actions_are():
    pushes = layer_of("released", heads=2).action_logits(SuperpositionAction.PUSH)
    assert pushes.tolist() == [True, False, False] * 2 + [False] * 6
    with pytest.raises(UsageError, match="no outputs of its projection"):
        layer_of("paper").action_logits(SuperpositionAction.PUSH)


@pytest.mark.parametrize("arguments", [{"num_heads": 5}, {"form": "code"}, {"read": "while"}, {"depth": 0}])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"do not divide stack_embedding_size|expected 'released'"):
        StackTransAttention(4, 8, **({"num_heads": 2} | arguments))


def test_it_begins_as_the_identity_beside_its_reading():
    """With each rule of initialisation gamma is 0 and the null cell is small."""
    for rule in ("uniform", "xavier"):
        settings = LanguageModelSettings.model_validate({"layers": "1.softmax+stack_trans", "weight_init": rule})
        layer = build_language_model(settings, VocabularySpec(9)).layers.blocks[1].stack.layer
        assert layer.log_gain == 0
        assert 0 < layer.null.abs().max() < 0.05
