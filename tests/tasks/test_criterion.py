"""The training loss besides the cross-entropy."""

import numpy as np
import pytest
import torch

from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.settings.training import LabelSmoothing, TrainingSettings
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.errors import SettingsError
from structattn.support.special_tokens import PAD
from structattn.tasks.losses import Criterion, ReceptiveFieldRegularizer
from structattn.text.batching.sequences import make_batch

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
    difference = Criterion(receptive_field=ReceptiveFieldRegularizer(0.3))(language_model, batch) - Criterion()(
        language_model, batch
    )
    assert difference.item() == pytest.approx(0.3 * total, rel=1e-9)


def field_of(layers, recursion):
    """Receptive fields of one string, entry by entry."""
    field = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    for weights in layers:
        added = weights[0] @ field
        field = (field + added.sum(0)).clamp(max=1) if recursion == "clamp" else 1 - (1 - field) * (1 - added).prod(0)
    return field


FORMS = {
    "mean": lambda field: field.sum(),
    "union": lambda field: field.sum(0).clamp(max=1).sum(),
    "printed": lambda field: field.sum(1).clamp(max=1).sum(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("own_position", [True, False])
@pytest.mark.parametrize("recursion", ["clamp", "probabilistic"])
def test_forms_of_the_regularizer_in_settings(language_model, batch, form, own_position, recursion):
    settings = TrainingSettings(
        receptive_field_weight=0.3,
        receptive_field_form=form,
        receptive_field_own_position=own_position,
        receptive_field_recursion=recursion,
    )
    batch.targets[:, :1] = PAD
    total = 0.0
    for row, length in zip(batch.inputs, batch.lengths.tolist(), strict=True):
        field = field_of(language_model.attend(row[None, :length])[1], recursion)
        field = field if own_position else field - torch.eye(length)
        total += FORMS[form](field[1:]).item()
    difference = Criterion.from_settings(settings)(language_model, batch) - Criterion()(language_model, batch)
    assert difference.item() == pytest.approx(0.3 * total, rel=1e-9)


def test_the_printed_form_is_the_number_of_positions(language_model, batch):
    """It has no gradient, as s_ii = 1."""
    regularized = Criterion(receptive_field=ReceptiveFieldRegularizer(1.0, "printed"))(language_model, batch)
    difference = regularized - Criterion()(language_model, batch)
    assert difference.item() == pytest.approx(int(batch.lengths.sum()))
    weights = language_model.layers.blocks[1].attention.layer.projection.weight
    assert torch.autograd.grad(difference, weights)[0].abs().max() < 1e-12


@pytest.mark.parametrize("field", ["form", "recursion"])
def test_unknown_forms_are_refused(field):
    with pytest.raises(SettingsError, match=rf"training\.receptive_field_{field}=other: expected .*got 'other'"):
        resolve_settings({"task": "formal_language", "data": "x"}, [f"training.receptive_field_{field}=other"])


def test_the_regularizer_reaches_what_decides_on_the_choices(language_model, batch):
    language_model.train()
    torch.manual_seed(1)
    plain = torch.autograd.grad(Criterion()(language_model, batch), [*language_model.parameters()], allow_unused=True)
    torch.manual_seed(1)
    with_fields = torch.autograd.grad(
        Criterion(receptive_field=ReceptiveFieldRegularizer(1.0))(language_model, batch),
        [*language_model.parameters()],
        allow_unused=True,
    )
    moved = {
        name
        for (name, _), a, b in zip(language_model.named_parameters(), plain, with_fields, strict=True)
        if a is not None and (a - b).abs().max() > 1e-5 * a.abs().max()  # more than rounding
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
        Criterion(receptive_field=ReceptiveFieldRegularizer(0.1))(model, batch)


def test_models_without_weights_are_refused(table_model, batch):
    with pytest.raises(SettingsError, match="this kind of model returns no attention weights"):
        Criterion(receptive_field=ReceptiveFieldRegularizer(0.1))(table_model, batch)


def test_smoothing_moves_mass_from_the_targets(language_model, batch):
    """Torch's formula: (1 - ε) nats + ε times the mean over all classes."""
    logits = language_model(batch.inputs, batch.lengths).log_softmax(-1)
    real = torch.arange(batch.inputs.shape[1]) < batch.lengths[:, None]
    uniform = -logits.mean(-1)[real].sum()
    found = Criterion(LabelSmoothing(epsilon=0.2))(language_model, batch)
    torch.testing.assert_close(found, 0.8 * Criterion()(language_model, batch) + 0.2 * uniform)
