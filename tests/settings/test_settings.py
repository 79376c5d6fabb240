"""Settings of runs: defaults, overrides, and errors with dotted paths."""

from pathlib import Path

import pytest
import yaml

from structattn.settings.optimizers import ConstantSchedule, PlateauSchedule, WarmupSchedule
from structattn.settings.run import RunSettings, load_settings, resolve_settings
from structattn.settings.sweep import load_sweep
from structattn.settings.training import TokenBatches
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
        ("model.layres=3", "model.layres=.*: no such field"),
        (
            "model.layers=[{attention: nondeterministic, num_states: 2, symbol: 3, stack_embedding_size: 5}]",
            r"model\.layers\.0\.symbol: no such field",
        ),
        ("model.num_heads=3", "model: .*layer 0: d_model 32 is not divisible by num_heads 3"),
        ("model.kind=perceptron", "model: 'perceptron' is not one of transformer, masked, encoder_decoder"),
        ("model={kind: encoder_decoder, decoder: {layer: 3}}", r"model\.decoder\.layer: no such field"),
        ("model.layers=[{attention: superposition}]", r"model\.layers\.0\.stack_embedding_size: missing"),
        ("model.dropout=1.5", "model.dropout=.*: .*got 1.5"),
        ("training.batches={kind: words}", "training.batches=.*: .*'words'"),
        (
            "training.schedule={kind: linear, total_steps: 0}",
            r"training\.schedule\.total_steps: expected at least 1, got 0",
        ),
        ("training.temperature={updates: 10}", "training.temperature: needs hard attention; the model has none"),
        ("training.optimizer.learning_rate=fast", "training.optimizer.learning_rate=.*: .*got 'fast'"),
        ("seed", "expected path.to.field=value"),
        ("seed.deep=1", "seed.deep: no such field|seed: "),
        ("data.deep=1", "'data' is 'prepared', which has no fields"),
        ("seed=[", "not a YAML value"),
        ("seed=2024-99-99", "seed=.*: expected an integer, got '2024-99-99'"),
        ("seed=!!int abc", "seed: .*not a YAML value: .*'abc' is not of the type int"),
        ("training.max_grad_norm=!!float abc", "'abc' is not of the type float"),
        ("training.max_grad_norm=!!bool abc", "'abc' is not of the type bool"),
        ("seed=" + "9" * 6000, "seed: .*is not of the type int"),
        ("model=" + "[" * 100, "nested more than 32 levels deep"),
        ("model" + ".a" * 5000 + "=1", "5001 parts; expected at most 32"),
        ("seed=" + "[x, " * 20 + "x" + "]" * 20, r"seed=.*: .*got \['x', .*\.\.\."),
        ("training.optimizer.betas=[0.9]", r"betas\.1: missing"),
        ("model.layers=999999999", "999999999 layers; expected at most 1000"),
        ("model.layers=999999999xsuperposition-3.2", "1000000001 layers; expected at most 1000"),
        ("model.d_model=99999999999", "model.d_model=.*: expected at most 1000000"),
        ("model={kind: two_stream, num_layers: 999999999}", "num_layers: expected at most 1000"),
        ("model.kind=gtp2", r"'gtp2' is not one of .*; did you mean gpt2\?$"),
        ("model.layers=superpositon-16", r"'superpositon-16' in .*; did you mean superposition\?; one of your own"),
        ("model=lstm", r"model=lstm: expected settings, as \{field: value\}, got 'lstm'$"),
        ("model.layers=nondeterministic-20-3-5", r"^\S+ model.layers.0.nondeterministic.num_states: .*, got 20$"),
        ("training.num_threads=99999", "num_threads=.*: expected at most 1024"),
        ("training.validate_every=0", r"^training.validate_every=0: expected at least 1, got 0$"),
        (
            "training.validate_every={examples: 0}",
            r"^training.validate_every={examples: 0}: training.validate_every.examples: expected at least 1, got 0$",
        ),
        ("model={kind: lstm, stack: {attention: superposition, num_heads: 2}}", r"num_heads: expected 1, got 2(;|$)"),
        (
            "model={num_heads: 2, layers: [{attention: gaussian, offsets: [-1, 0, 1]}]}",
            "layer 0: 3 offsets for 2 Gaussian heads; expected at most one a head",
        ),
        ("model.layers=[{attention: delta_product, key_size: 3, num_heads: 3}]", "32 is not divisible by num_heads 3"),
        ("model={positions: rotary, d_model: 12, layers: gaussian-4.softmax-4}", "layer 1: rotary .* got 3"),
        ("training.max_epochs=yes", "^training.max_epochs=yes: expected an integer, got True$"),
        ("model.dropout=false", "^model.dropout=false: expected a number, got False$"),
        ("training.optimizer.betas=[true, 0.9]", r"betas=.*: expected a number, got \[True, 0.9\]$"),
    ],
)
def test_errors_name_the_path(override, message):
    with pytest.raises(SettingsError, match=message) as caught:
        resolved(override)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        "{d_model: 10, layers: [{attention: delta_product, key_size: 3, value_size: 3}]}",
        "{d_model: 12, positions: rotary, layers: delta_product}",
        "{kind: encoder_decoder, d_model: 24, positions: rotary, decoder: {layers: 1, cross_attention: softmax-8}}",
    ],
)
def test_sizes_of_heads_are_refused_only_where_they_do_not_fit(model):
    assert resolved(f"model={model}")


def test_one_string_is_no_sequence_of_overrides():
    with pytest.raises(TypeError, match="overrides is the string 'seed=2'; expected a sequence of strings"):
        resolve_settings({}, "seed=2")


def test_many_errors_are_counted():
    with pytest.raises(SettingsError, match=r"; and \d+ more$"):
        resolved(f"model.layers=[{', '.join(['{attention: superposition}'] * 200)}]")


def test_checkpoints_that_are_not_kept_cannot_be_averaged():
    assert resolved("evaluation.checkpoint=last-3", "training.keep_checkpoints=3").evaluation.checkpoint == "last-3"
    with pytest.raises(SettingsError, match=r"'last-4' needs 4 checkpoints; training\.keep_checkpoints is 3"):
        resolved("evaluation.checkpoint=last-4", "training.keep_checkpoints=3")


def test_a_data_path_is_unicode():
    with pytest.raises(SettingsError, match=r"data: .*the path is not UTF-8"):
        resolve_settings(MINIMAL | {"data": "/data/\udcff"})


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "settings.yaml"
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(path)
    path.write_text("- 1\n- 2\n")
    with pytest.raises(SettingsError, match="expected a mapping of settings, found list"):
        load_settings(path)
    path.write_text("# task\n")
    with pytest.raises(SettingsError, match=r"settings\.yaml: is empty; expected a mapping of settings"):
        load_settings(path)
    path.write_text("a: [")
    with pytest.raises(SettingsError, match="not YAML"):
        load_settings(path)
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(path)
    path.write_text("#" * 2_000_000)
    with pytest.raises(SettingsError, match=r"settings\.yaml: .*expected at most 1,048,576"):
        load_settings(path)


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        resolved().seed = 2


def test_settings_of_a_run_and_of_a_sweep_are_told_apart(tmp_path):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"base": MINIMAL, "grid": {}}))
    with pytest.raises(SettingsError, match=r"sweep\.yaml: settings of a sweep, .*`structattn sweep` trains them"):
        load_settings(tmp_path / "sweep.yaml")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(MINIMAL))
    with pytest.raises(SettingsError, match=r"run\.yaml: settings of a run, .*expected those of a sweep"):
        load_sweep(tmp_path / "run.yaml")


@pytest.mark.parametrize("folder", ["2024", "no", "1e3", "~", "[a]", "2024-01-02", "a: b"])
def test_a_folder_of_an_override_is_its_text(folder):
    settings = resolve_settings({"task": "formal_language", "data": "other"}, [f"data={folder}"])
    assert settings.data == Path(folder)
