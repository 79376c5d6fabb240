"""Which models satisfy which protocols."""

import pytest

from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, RecurrentLanguageModel
from structattn.models.protocols import AttendingModel, CausalModel


@pytest.mark.parametrize("model", [LanguageModel, RecurrentLanguageModel])
def test_language_models_go_step_by_step(model):
    assert issubclass(model, CausalModel)
    assert not issubclass(MaskedLanguageModel, CausalModel)


def test_models_of_blocks_return_attention_weights():
    models = [LanguageModel, MaskedLanguageModel, RecurrentLanguageModel, EncoderDecoder]
    assert [model for model in models if issubclass(model, AttendingModel)] == models[:2]
