"""Initial weights: which rule draws what."""

import math

import pytest
import torch

from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.settings.transformer import LanguageModelSettings

SCALE = 0.1


def built(**settings):
    torch.manual_seed(0)
    chosen = {"d_model": 64, "d_ff": 128, "layers": "1.nondeterministic-2-3-5.1", "init_scale": SCALE}
    return build_language_model(LanguageModelSettings.model_validate(chosen | settings), VocabularySpec(200))


def assert_uniform(weights, bound):
    """All within ±bound, close to it, and spread as a uniform distribution is."""
    weights = weights.detach()
    assert weights.abs().max() <= bound
    assert weights.abs().max() > 0.95 * bound
    assert float(weights.std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)


def xavier(fan_in, fan_out, gain=1.0):
    return gain * math.sqrt(6 / (fan_in + fan_out))


def test_stack_layers_and_the_output_follow_xavier():
    model = built()
    block = model.layers.blocks[1]
    actions, values, output = block.attention.layer.xavier_matrices()
    assert_uniform(actions, xavier(64, 84))
    assert_uniform(values, xavier(64, 5))
    assert_uniform(output, xavier(30, 64))
    assert_uniform(block.feedforward.layer.hidden.weight, xavier(64, 128, math.sqrt(2)))
    assert_uniform(block.feedforward.layer.output.weight, xavier(128, 64))
    assert_uniform(model.output.weight, xavier(64, 198))
    assert not block.feedforward.layer.hidden.bias.any()
    assert not model.output.bias.any()


def test_the_rest_is_uniform_and_norms_are_neutral():
    model = built()
    block = model.layers.blocks[0]
    assert_uniform(model.embedding.table.weight, SCALE)
    assert_uniform(block.attention.layer.projection.weight, SCALE)
    assert_uniform(block.attention.layer.output.weight, SCALE)
    assert_uniform(block.feedforward.layer.hidden.weight, SCALE)
    assert block.attention.layer.projection.bias.abs().max() <= SCALE
    assert block.attention.layer.projection.bias.any()
    assert model.layers.blocks[1].attention.layer.bottom.abs().max() <= SCALE
    for norm in (block.attention.norm, block.feedforward.norm, model.layers.final):
        assert torch.equal(norm.weight, torch.ones(64))
        assert not norm.bias.any()


def test_embeddings_can_be_normal_and_nothing_else_changes():
    plain, normal = built(), built(embedding_init="normal")
    assert float(normal.embedding.table.weight.detach().std()) == pytest.approx(1, rel=0.05)
    assert_uniform(normal.layers.blocks[0].attention.layer.projection.weight, SCALE)
    same = dict(plain.named_parameters())
    assert torch.equal(
        same["layers.blocks.0.attention.layer.projection.weight"],
        normal.layers.blocks[0].attention.layer.projection.weight,
    )


@pytest.mark.parametrize(("rule", "deviation"), [("scaled_normal", 1 / 8), ("truncated_normal", 0.88 * 0.02)])
def test_other_rules_for_embeddings(rule, deviation):
    weights = built(embedding_init=rule).embedding.table.weight.detach()
    assert float(weights.std()) == pytest.approx(deviation, rel=0.03)
    assert rule == "scaled_normal" or weights.abs().max() <= 0.04


def test_xavier_everywhere():
    model = built(weight_init="xavier")
    attention, maps = model.layers.blocks[0].attention.layer, model.layers.blocks[0].feedforward.layer
    assert_uniform(attention.projection.weight, xavier(64, 3 * 64))
    assert_uniform(attention.output.weight, xavier(64, 64))
    assert_uniform(maps.hidden.weight, xavier(64, 128, math.sqrt(2)))
    assert_uniform(maps.output.weight, xavier(128, 64))
    assert_uniform(model.output.weight, xavier(64, 198))
    assert_uniform(model.embedding.table.weight, SCALE)
    assert not any(bias.any() for name, bias in model.named_parameters() if name.endswith("bias"))
    assert not model.layers.blocks[1].attention.layer.bottom.any()


def test_lecun_everywhere():
    model = built(weight_init="lecun", embedding_init="normal")
    for linear in (module for module in model.modules() if isinstance(module, torch.nn.Linear)):
        deviation = linear.in_features**-0.5
        assert linear.weight.abs().max() <= 2 * deviation
        assert float(linear.weight.detach().std()) == pytest.approx(0.88 * deviation, rel=0.1)
        assert linear.bias is None or not linear.bias.any()


def test_an_added_stack_follows_xavier_and_the_maps_before_it_do_not():
    block = built(layers="2+superposition-40").layers.blocks[0]
    for matrix in block.stack.layer.xavier_matrices():
        assert_uniform(matrix, xavier(matrix.shape[1], matrix.shape[0]))
    assert_uniform(block.feedforward.layer.hidden.weight, SCALE)
