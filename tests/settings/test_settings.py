"""Settings of runs: defaults, overrides, and errors with dotted paths."""

import pytest
import yaml

from structattn.settings.run import RunSettings, load_settings, resolve_settings
from structattn.settings.training import ConstantSchedule, PlateauSchedule, TokenBatches, WarmupSchedule
from structattn.support.errors import SettingsError

MINIMAL = {"task": "formal_language", "data": "prepared"}


def resolved(*overrides):
    return resolve_settings(dict(MINIMAL), overrides)


def test_missing_kinds_have_defaults():
    assert resolved("training.batches.batch_size=4").training.batches.batch_size == 4
    assert resolved("training.schedule.patience=1").training.schedule == PlateauSchedule(patience=1)
    assert resolved("training.schedule={kind: warmup, warmup_steps: 7}").training.schedule == WarmupSchedule(
        kind="warmup", warmup_steps=7
    )
    assert resolved("training.batches={kind: tokens, max_tokens: 9}").training.batches == TokenBatches(max_tokens=9)


def test_a_kind_can_be_given_by_its_name():
    assert resolved("training.schedule=constant").training.schedule == ConstantSchedule()
    assert resolved("training.batches=tokens").training.batches == TokenBatches()


def test_resolved_settings_can_be_read_back(tmp_path):
    settings = resolved("model.layers=1.superposition-4.1", "training.precision=bf16", "seed=7")
    path = tmp_path / "settings.yaml"
    path.write_text(settings.to_yaml())
    assert load_settings(path) == settings
    assert RunSettings.model_validate(yaml.safe_load(settings.to_yaml())) == settings


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.layres=3", "model.layres: Extra inputs"),
        (
            "model.layers=[{attention: nondeterministic, num_states: 2, symbol: 3, stack_embedding_size: 5}]",
            r"model\.layers\.0\.symbol: Extra inputs",
        ),
        ("model.num_heads=3", "model: .*layer 0: d_model 32 is not divisible by num_heads 3"),
        ("model.kind=perceptron", "model: .*'perceptron'.*'transformer', 'masked', 'encoder_decoder'"),
        ("model={kind: encoder_decoder, decoder: {layer: 3}}", r"model\.decoder\.layer: Extra inputs"),
        ("model.layers=[{attention: superposition}]", r"model\.layers\.0\.stack_embedding_size: Field required"),
        ("model.dropout=1.5", "model.dropout: .*got 1.5"),
        ("training.batches={kind: words}", "training.batches: .*'words'"),
        ("training.schedule=linear", r"training\.schedule\.total_steps: Field required"),
        ("training.optimizer.learning_rate=fast", "training.optimizer.learning_rate: .*got 'fast'"),
        ("seed", "expected path.to.field=value"),
        ("seed.deep=1", "seed.deep: Extra inputs|seed: "),
        ("data.deep=1", "'data' is 'prepared', which has no fields"),
        ("seed=[", "not a YAML value"),
    ],
)
def test_errors_name_the_path(override, message):
    with pytest.raises(SettingsError, match=message):
        resolved(override)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "settings.yaml"
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(path)
    path.write_text("- 1\n- 2\n")
    with pytest.raises(SettingsError, match="expected a mapping of settings, found list"):
        load_settings(path)
    path.write_text("a: [")
    with pytest.raises(SettingsError, match="not YAML"):
        load_settings(path)
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(path)


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        resolved().seed = 2
