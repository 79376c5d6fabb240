"""What a misspelt or misplaced setting may mean, and what is blamed for it."""

import copy

import pytest

from structattn.settings.base import suggestion
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.run import RunSettings, resolve_settings
from structattn.support.errors import SettingsError, UsageError

TREE = {"task": "formal_language", "data": "prepared"}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("training.optimizer.learning_rat", "training.optimizer.learning_rate"),
        ("training.learning_rate", "training.optimizer.learning_rate"),
        ("training.lr", "training.optimizer.learning_rate"),
        ("training.optimizer.lr", "training.optimizer.learning_rate"),
        ("training.batch_size", "training.batches.batch_size"),
        ("trainig", "training"),
        ("training.max_update", "training.max_updates"),
        ("model.dmodel", "model.d_model"),
        ("model.layers.1.num_head", "model.layers.1.num_heads"),
        ("max_epochs", "training.max_epochs"),
        ("training.schedule.warmup_step", "training.schedule.warmup_steps"),
        ("model.xyzzy", None),
        ("model.layers", "model.num_layers"),  # of a two-stream model
    ],
)
def test_similar_fields_are_found(path, meant):
    assert suggestion(RunSettings, path) == meant


def error_of(tree, *overrides):
    with pytest.raises(SettingsError) as caught:
        resolve_settings(copy.deepcopy(tree), overrides, "recipe.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "meant"),
    [
        (["model.kind=encoder_decoder", "model.layers=3"], "model.decoder.layers"),
        (["model.kind=lstm", "model.num_heads=3"], "model.stack.num_heads"),
        (["model.kind=lstm", "model.d_model=3"], None),
        (["training.batches.max_tokens=500"], None),  # of other batches
        (["training.batches.kind=pairs", "training.batches.max_token=500"], "training.batches.max_tokens"),
        (["model.positions.max_positions=20"], None),
        (["model.positions.kind=learned", "model.positions.max_position=20"], "model.positions.max_positions"),
    ],
)
def test_fields_of_the_chosen_kinds_are_meant(overrides, meant):
    message = error_of(TREE, *overrides)
    assert "no such field" in message
    assert (f"; did you mean {meant}?" in message) if meant else ("did you mean" not in message)


def test_the_kinds_that_have_an_unknown_field_are_named():
    tokens = error_of(TREE, "training.batches.kind=stream", "training.batches.max_tokens=500")
    assert "no such field; kinds that have it: pairs, tokens [expected one of batch_size," in tokens
    assert "; kinds that have it: rnn [" in error_of(TREE, "model.kind=lstm", "model.activation=relu")
    assert "kinds that have it" not in error_of(TREE, "training.xyzzy=1")
    assert "kinds that have it" not in error_of(TREE, "xyzzy=1")


def test_a_misspelt_field_is_corrected_wherever_it_comes_from():
    correct = "did you mean training.max_updates?"
    assert error_of(TREE, "training.max_update=3").startswith("training.max_update=3: no such field")
    assert correct in error_of(TREE, "training.max_update=3")
    in_file = error_of({**TREE, "training": {"max_update": 3}}, "seed=2")
    assert in_file.startswith("recipe.yaml: training.max_update: ")
    assert correct in in_file


def test_an_override_that_breaks_a_rule_between_fields_is_blamed_itself():
    assert error_of(TREE, "training.select_by=bleu").startswith("training.select_by=bleu: ")
    broken = {**TREE, "training": {"select_by": "bleu"}}
    assert error_of(broken).startswith("recipe.yaml: ")
    assert error_of(broken, "seed=3").startswith("recipe.yaml: ")


def test_overrides_of_other_groups_are_not_blamed():
    message = error_of(TREE, "data=other", "model.d_model=130", "model.num_heads=4")
    assert message.startswith("model.d_model=130 model.num_heads=4: model: ")
    assert "130 is not divisible" in message


def test_the_fields_of_the_group_are_listed():
    optimizer = error_of(TREE, "training.optimizer.lr=0.1")
    assert optimizer.endswith(
        "no such field; did you mean training.optimizer.learning_rate? "
        "[expected one of betas, epsilon, kind, learning_rate, weight_decay]"
    )
    assert "momentum" in error_of({**TREE, "training": {"optimizer": {"kind": "sgd", "lr": 0.1}}})
    assert "[expected one of data, evaluation, model, plugins, seed, task, training]" in error_of({**TREE, "xyzzy": 1})
    layer = error_of({**TREE, "model": {"layers": [{"attention": "superposition", "xyzzy": 1}]}})
    assert "stack_embedding_size" in layer
    assert "num_states" not in layer


def test_the_device_is_not_a_number_of_processes():
    message = error_of(TREE, "training.device=cuda")
    assert "did you mean" not in message
    assert "no such field; the device is a GPU if there is one, else the CPU; CUDA_VISIBLE_DEVICES= hides" in message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"beam_sizes": 2},
            "evaluation.beam_sizes: no such field; did you mean beam_size? [expected one of beam_size,",
        ),
        ({"beam_size": 0}, "evaluation.beam_size: expected at least 1, got 0"),
    ],
)
def test_a_wrong_setting_of_evaluation_is_named_by_its_path(values, message):
    with pytest.raises(UsageError) as caught:
        EvaluationSettings().changed(values)
    assert str(caught.value).startswith(message)
