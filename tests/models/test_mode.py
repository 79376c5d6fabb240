"""The evaluation mode's context manager."""

import pytest
from torch import nn

from structattn.models.mode import evaluating


@pytest.mark.parametrize("was_training", [True, False])
def test_evaluating_restores_the_previous_mode(was_training):
    model = nn.Sequential(nn.Dropout()).train(was_training)
    with evaluating(model) as same:
        assert same is model
        assert not model.training
        assert not model[0].training
    assert model.training == model[0].training == was_training


def test_evaluating_restores_the_mode_after_an_exception():
    model = nn.Dropout()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        _ = 1 / 0
    assert model.training
