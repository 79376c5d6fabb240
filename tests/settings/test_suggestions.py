"""What a misspelt or misplaced setting may mean, and what is blamed for it."""

import copy

import pytest

from structattn.settings.base import suggestion
from structattn.settings.run import RunSettings, resolve_settings
from structattn.support.errors import SettingsError

TREE = {"task": "formal_language", "data": "prepared"}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("training.optimizer.learning_rat", "training.optimizer.learning_rate"),
        ("training.learning_rate", "training.optimizer.learning_rate"),
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


def test_a_misspelt_field_is_corrected_wherever_it_comes_from():
    correct = "did you mean training.max_updates?"
    assert error_of(TREE, "training.max_update=3").startswith("training.max_update=3: no such field")
    assert error_of(TREE, "training.max_update=3").endswith(correct)
    in_file = error_of({**TREE, "training": {"max_update": 3}}, "seed=2")
    assert in_file.startswith("recipe.yaml: training.max_update: ")
    assert in_file.endswith(correct)


def test_an_override_that_breaks_a_rule_between_fields_is_blamed_itself():
    assert error_of(TREE, "training.select_by=bleu").startswith("training.select_by=bleu: ")
    broken = {**TREE, "training": {"select_by": "bleu"}}
    assert error_of(broken).startswith("recipe.yaml: ")
    assert error_of(broken, "seed=3").startswith("recipe.yaml: ")


def test_overrides_of_other_groups_are_not_blamed():
    message = error_of(TREE, "data=other", "model.d_model=130", "model.num_heads=4")
    assert message.startswith("model.d_model=130 model.num_heads=4: model: ")
    assert "130 is not divisible" in message
