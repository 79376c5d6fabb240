"""Initial weights: which rule draws what (DuSell & Chiang 2024, appendix D.2)."""

import math

import pytest
import torch

from structattn.settings.model import LanguageModelSettings
from structattn.tasks.build import build_language_model

SCALE = 0.1


def built(**settings):
    torch.manual_seed(0)
    chosen = {"width": 64, "feedforward_width": 128, "layers": "1.nondeterministic-2-3-5.1", "initial_scale": SCALE}
    return build_language_model(LanguageModelSettings.model_validate(chosen | settings), vocabulary_size=200)


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
    block = model.blocks[1]
    actions, values, output = block.attention.fully_connected()
    assert_uniform(actions, xavier(64, 84))
    assert_uniform(values, xavier(64, 5))
    assert_uniform(output, xavier(30, 64))
    assert_uniform(block.feedforward.hidden.weight, xavier(64, 128, math.sqrt(2)))
    assert_uniform(block.feedforward.output.weight, xavier(128, 64))
    assert_uniform(model.output.weight, xavier(64, 198))
    assert not block.feedforward.hidden.bias.any()
    assert not model.output.bias.any()


def test_the_rest_is_uniform_and_norms_are_neutral():
    model = built()
    block = model.blocks[0]
    assert_uniform(model.embedding.weight, SCALE)
    assert_uniform(block.attention.projection.weight, SCALE)
    assert_uniform(block.attention.output.weight, SCALE)
    assert_uniform(block.feedforward.hidden.weight, SCALE)
    assert block.attention.projection.bias.abs().max() <= SCALE
    assert block.attention.projection.bias.any()
    assert model.blocks[1].attention.bottom.abs().max() <= SCALE
    for norm in (block.attention_norm, block.feedforward_norm, model.final_norm):
        assert torch.equal(norm.weight, torch.ones(64))
        assert not norm.bias.any()


def test_embeddings_can_be_normal_and_nothing_else_changes():
    plain, normal = built(), built(initial_embedding="normal")
    assert float(normal.embedding.weight.detach().std()) == pytest.approx(1, rel=0.05)
    assert_uniform(normal.blocks[0].attention.projection.weight, SCALE)
    same = dict(plain.named_parameters())
    assert torch.equal(same["blocks.0.attention.projection.weight"], normal.blocks[0].attention.projection.weight)
