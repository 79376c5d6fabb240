"""The evaluation mode's context manager."""

import pytest
import torch
from torch import nn

from structattn.models.builders.models import build_model
from structattn.models.mode import evaluating, evaluating_with_dropout
from structattn.settings.transformer import LanguageModelSettings


@pytest.mark.parametrize("was_training", [True, False])
def test_evaluating_restores_the_previous_mode(was_training):
    model = nn.Sequential(nn.Dropout()).train(was_training)
    with evaluating(model) as same:
        assert same is model
        assert not model.training
        assert not model[0].training
    assert model.training == model[0].training == was_training


def test_evaluating_restores_the_mode_of_each_submodule():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]


def test_evaluating_restores_the_mode_after_an_exception():
    model = nn.Dropout()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        _ = 1 / 0
    assert model.training


def model_and_tokens(layers, **rates):
    torch.manual_seed(3)
    settings = LanguageModelSettings(d_model=8, d_ff=8, num_heads=2, layers=layers, **rates)
    return build_model(settings, 9).eval(), torch.randint(3, 9, (2, 5))


def logits_with_dropout(model, tokens, seed):
    with evaluating_with_dropout(model, seed), torch.no_grad():
        return model(tokens)


def test_dropout_in_evaluation_is_that_of_training():
    model, tokens = model_and_tokens("1.superposition-4.1", dropout=0.3)
    torch.manual_seed(11)
    with torch.no_grad():
        expected, plain = model.train()(tokens), model.eval()(tokens)
    assert torch.equal(logits_with_dropout(model, tokens, 11), expected)
    assert not torch.allclose(expected, plain)
    assert not torch.allclose(logits_with_dropout(model, tokens, 12), expected)


def test_hard_attention_has_no_noise_in_evaluation_with_dropout():
    model, tokens = model_and_tokens([{"attention": "hard"}] * 2, dropout=0.0)
    assert torch.equal(logits_with_dropout(model, tokens, 1), model(tokens))
    assert not torch.equal(model.train()(tokens), model.eval()(tokens))


def test_dropout_in_evaluation_restores_mode_and_generator():
    model, tokens = model_and_tokens(2, dropout=0.5)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    logits_with_dropout(model, tokens, 1)
    assert torch.equal(torch.rand(3), expected)
    assert not any(module.training for module in model.modules())
