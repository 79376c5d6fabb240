"""The training loss besides the cross-entropy."""

import numpy as np
import pytest
import torch

from structattn.building.models import build_model
from structattn.data.batching.sequences import make_batch
from structattn.settings.model import LanguageModelSettings
from structattn.settings.training import LabelSmoothing
from structattn.support.errors import SettingsError
from structattn.support.special_tokens import PAD
from structattn.tasks.losses import Criterion

STRINGS = [[3, 5, 3], [4], [], [4, 4, 5, 4, 4]]


@pytest.fixture
def batch():
    return make_batch([np.array(string, dtype=np.int32) for string in STRINGS], range(4))


@pytest.fixture
def language_model():
    settings = LanguageModelSettings.model_validate(
        {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": [{"attention": "hard"}, {"attention": "softmax"}]}
    )
    torch.manual_seed(0)
    return build_model(settings, 6).double().eval()


@pytest.mark.parametrize("asked", [0, 1])
def test_the_receptive_fields_are_added_with_their_weight(language_model, batch, asked):
    """S^l = min(S^(l-1) + (sum_h Z^h) S^(l-1), 1), string by string; positions that predict nothing add nothing."""
    batch.targets[:, :asked] = PAD
    inputs, total = batch.inputs, 0.0
    for row, length in zip(inputs, batch.lengths.tolist(), strict=True):
        field = torch.eye(length, dtype=torch.float64)
        for weights in language_model.attend(row[None, :length])[1]:
            field = (field + weights[0].sum(0) @ field).clamp(max=1)
        total += field[asked:].sum().item()
    difference = Criterion(receptive_field_weight=0.3)(language_model, batch) - Criterion()(language_model, batch)
    assert difference.item() == pytest.approx(0.3 * total, rel=1e-9)


def test_the_regulariser_reaches_what_decides_on_the_choices(language_model, batch):
    language_model.train()
    torch.manual_seed(1)
    plain = torch.autograd.grad(Criterion()(language_model, batch), [*language_model.parameters()], allow_unused=True)
    torch.manual_seed(1)
    with_fields = torch.autograd.grad(
        Criterion(receptive_field_weight=1.0)(language_model, batch), [*language_model.parameters()], allow_unused=True
    )
    moved = {
        name
        for (name, _), a, b in zip(language_model.named_parameters(), plain, with_fields, strict=True)
        if a is not None and not torch.equal(a, b)
    }
    assert any("blocks.0.attention" in name for name in moved)
    assert not any(name.startswith("output") for name in moved)


@pytest.mark.parametrize(
    "layers", [[{"attention": "softmax"}, {"attention": "superposition", "stack_embedding_size": 4}]]
)
def test_layers_without_weights_are_refused(layers, batch):
    model = build_model(LanguageModelSettings.model_validate({"d_model": 8, "num_heads": 2, "layers": layers}), 6)
    with pytest.raises(
        SettingsError, match=r"receptive_field_weight: layer 1 returns no attention weights; expected .*softmax"
    ):
        Criterion(receptive_field_weight=0.1)(model, batch)


def test_models_without_weights_are_refused(table_model, batch):
    with pytest.raises(SettingsError, match="this kind of model returns no attention weights"):
        Criterion(receptive_field_weight=0.1)(table_model, batch)


def test_smoothing_moves_mass_from_the_targets(language_model, batch):
    """Torch's formula: (1 - ε) nats + ε times the mean over all classes."""
    logits = language_model(batch.inputs, batch.lengths).log_softmax(-1)
    real = torch.arange(batch.inputs.shape[1]) < batch.lengths[:, None]
    uniform = -logits.mean(-1)[real].sum()
    found = Criterion(LabelSmoothing(epsilon=0.2))(language_model, batch)
    torch.testing.assert_close(found, 0.8 * Criterion()(language_model, batch) + 0.2 * uniform)
