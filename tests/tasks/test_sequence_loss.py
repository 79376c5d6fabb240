import numpy as np
import pytest
import torch

from structattn.data.batching import make_batch
from structattn.settings.model import LanguageModelSettings
from structattn.support.errors import SettingsError
from structattn.tasks.build import build_model
from structattn.tasks.scoring import perplexity, score_batches
from structattn.tasks.sequence_loss import loss_divisor, summed_nats, symbol_count

STRINGS = [[3, 5, 3], [4], [], [4, 4, 5, 4, 4]]


@pytest.fixture
def batch():
    return make_batch([np.array(string, dtype=np.int32) for string in STRINGS], range(4))


def test_nats_are_those_added_up_by_hand(table_model, batch):
    expected = [table_model.nats(string) for string in STRINGS]
    assert summed_nats(table_model, batch).item() == pytest.approx(sum(expected), rel=1e-6)


def test_padding_has_no_gradient(table_model, batch):
    summed_nats(table_model, batch).backward()
    assert not table_model.table.grad[0].any()
    assert table_model.table.grad[1].any()


def test_what_a_batch_counts(batch):
    assert symbol_count(batch) == 4 + 2 + 1 + 6
    assert loss_divisor("token_mean", batch) == 13
    assert loss_divisor("sequence_sum", batch) == 4


def test_lengths_are_given_to_the_model_only_where_a_row_is_padded(table_model, batch):
    summed_nats(table_model, batch)
    summed_nats(table_model, make_batch([np.array([3, 4]), np.array([5, 5])], [0, 1]))
    padded, whole = table_model.lengths
    assert torch.equal(padded, batch.lengths)
    assert whole is None


@pytest.fixture
def language_model():
    settings = LanguageModelSettings.model_validate(
        {"width": 8, "heads": 2, "feedforward_width": 8, "layers": [{"attention": "hard"}, {"attention": "softmax"}]}
    )
    torch.manual_seed(0)
    return build_model(settings, 6).double().eval()


def test_the_receptive_fields_are_added_with_their_weight(language_model, batch):
    """S^l = min(S^(l-1) + (sum_h Z^h) S^(l-1), 1), string by string; padded positions add nothing."""
    inputs, total = batch.inputs, 0.0
    for row, length in zip(inputs, batch.lengths.tolist(), strict=True):
        field = torch.eye(length, dtype=torch.float64)
        for weights in language_model.attend(row[None, :length])[1]:
            field = (field + weights[0].sum(0) @ field).clamp(max=1)
        total += field.sum().item()
    difference = summed_nats(language_model, batch, 0.3) - summed_nats(language_model, batch)
    assert difference.item() == pytest.approx(0.3 * total, rel=1e-9)


def test_the_regulariser_reaches_what_decides_on_the_choices(language_model, batch):
    language_model.train()
    torch.manual_seed(1)
    plain = torch.autograd.grad(summed_nats(language_model, batch), [*language_model.parameters()], allow_unused=True)
    torch.manual_seed(1)
    with_fields = torch.autograd.grad(
        summed_nats(language_model, batch, 1.0), [*language_model.parameters()], allow_unused=True
    )
    moved = {
        name
        for (name, _), a, b in zip(language_model.named_parameters(), plain, with_fields, strict=True)
        if a is not None and not torch.equal(a, b)
    }
    assert any("blocks.0.attention" in name for name in moved)
    assert not any(name.startswith("output") for name in moved)


@pytest.mark.parametrize("layers", [[{"attention": "softmax"}, {"attention": "superposition", "vector": 4}]])
def test_layers_without_weights_are_refused(layers, batch):
    model = build_model(LanguageModelSettings.model_validate({"width": 8, "heads": 2, "layers": layers}), 6)
    with pytest.raises(
        SettingsError, match=r"receptive_field_weight: layer 1 hands out no weights; expected .*softmax"
    ):
        summed_nats(model, batch, 0.1)


def test_models_without_weights_are_refused(table_model, batch):
    with pytest.raises(SettingsError, match="this kind of model hands out no weights"):
        summed_nats(table_model, batch, 0.1)


def test_scores_do_not_depend_on_how_strings_are_batched(table_model, batch):
    strings = [np.array(string, dtype=np.int32) for string in STRINGS]
    whole = score_batches(table_model, [batch], lambda: None)
    parts = score_batches(table_model, [make_batch(strings, [index]) for index in (2, 0, 3, 1)], lambda: None)
    assert (whole.sequences, whole.symbols) == (parts.sequences, parts.symbols) == (4, 13)
    assert whole.cross_entropy == pytest.approx(parts.cross_entropy, rel=1e-6)
    assert whole.perplexity == pytest.approx(np.exp(whole.cross_entropy))


def test_scoring_can_be_ended_between_batches(table_model, batch):
    seen = []

    def stop():
        seen.append(table_model.training)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_batches(table_model, [batch] * 5, stop)
    assert seen == [False, False]
    assert table_model.training


def test_perplexity_beyond_a_float_is_infinite():
    assert perplexity(709.0) > 1e300
    assert perplexity(800.0) == np.inf
    assert np.isnan(perplexity(np.nan))
