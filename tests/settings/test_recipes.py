"""Recipes by name, wherever the command runs."""

from pathlib import Path

import pytest
import yaml
from tests.program import invoke, succeed

from structattn.settings.recipes import recipes
from structattn.settings.run import load_settings
from structattn.settings.sweep import load_sweep
from structattn.support.errors import SettingsError

FOLDER = Path(__file__).parents[2] / "src/structattn/recipes"
FILES = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml")}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(*arguments):
    return succeed("list", *arguments).output


def test_every_recipe_is_listed_and_described():
    assert recipes().keys() == {name for name in FILES if not name.startswith("base/")}
    assert all(line and not line.startswith("structattn") and "\n" not in line for line in recipes().values())
    assert all(name in shown("recipes") for name in recipes())


def test_a_name_stands_for_the_file_of_the_recipe():
    assert load_settings("text", ["data=here"]) == load_settings(FOLDER / "text.yaml", ["data=here"])
    assert load_sweep("context_free/halved") == load_sweep(FOLDER / "context_free/halved.yaml")


@pytest.mark.parametrize("name", ["text", "hard_coded_attention/table_2", "base/you_2020"])
def test_a_recipe_is_printed_as_it_is_written(name):
    assert shown("recipes", name) == (FOLDER / f"{name}.yaml").read_text("utf-8")


def test_a_copy_of_a_recipe_with_a_shared_base_is_the_same_elsewhere(empty_folder):
    (empty_folder / "own.yaml").write_text(shown("recipes", "hard_coded_attention/table_2"), encoding="utf-8")
    assert load_sweep("own.yaml") == load_sweep("hard_coded_attention/table_2")


def test_a_base_is_a_recipe_or_a_file_beside_the_sweep(empty_folder):
    (empty_folder / "mine.yaml").write_text("task: language_modeling\ndata: mine\n")
    for base, data in (("text", "data/text"), ("mine.yaml", "mine")):
        (empty_folder / "sweep.yaml").write_text(yaml.safe_dump({"base": base}))
        assert load_sweep(empty_folder / "sweep.yaml").base["data"] == data


def test_files_of_the_name_of_a_recipe_are_meant_by_a_path(empty_folder):
    content = yaml.safe_load((FOLDER / "text.yaml").read_text("utf-8")) | {"data": "own"}
    (empty_folder / "text").write_text(yaml.safe_dump(content))
    assert str(load_settings("text").data) == "data/text"
    assert str(load_settings("./text").data) == "own"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("formal_languag", "did you mean formal_language?"),
        ("recipes/text.yaml", "did you mean text?"),
        ("mine.yaml", "`structattn list recipes` shows the recipes"),
    ],
)
def test_what_is_neither_a_recipe_nor_a_file_is_refused(name, hint):
    with pytest.raises(SettingsError, match=rf"^{name}: neither a file nor a recipe; ") as refused:
        load_settings(name)
    assert str(refused.value).endswith(hint)


def test_a_folder_is_not_a_file_of_settings(tmp_path):
    with pytest.raises(SettingsError, match="is a folder; expected a file of settings, or a recipe of"):
        load_settings(tmp_path)


@pytest.mark.parametrize("load", [load_settings, load_sweep])
def test_a_file_that_the_system_refuses_is_named(load):
    with pytest.raises(SettingsError, match=r"^a{300}: (File name too long$|neither a file)"):
        load("a" * 300)


def test_only_recipes_are_printed():
    result = invoke("list", "models", "gpt2")
    assert result.exit_code == 2
    assert "expected `structattn list recipes gpt2`" in result.output
    result = invoke("list", "recipies")
    assert result.exit_code == 2
    assert "recipes" in result.output
