"""What plugins register is undone after each test; a plugin with a mechanism, data and a recipe."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.program import invoke

from structattn.support.plugins import REGISTRIES, load_plugin
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.registry import TASKS
from structattn.tasks.transductions.registry import TRANSDUCTIONS

DECAY = Path(__file__).with_name("decay.py")
assert TASKS in REGISTRIES
assert TRANSDUCTIONS in REGISTRIES


@contextmanager
def forgetting():
    """Undo what is registered in the block when it ends, and when what it yields is called, as in a new process."""
    before = [(registry, dict(registry.entries), dict(registry.plugins)) for registry in REGISTRIES]
    modules = set(sys.modules)

    def undo():
        for registry, entries, plugins in before:
            registry.entries, registry.plugins = dict(entries), dict(plugins)
        for name in set(sys.modules) - modules:
            if name.startswith(("structattn_plugin_", "fake_")):
                del sys.modules[name]

    try:
        yield undo
    finally:
        undo()


@pytest.fixture(autouse=True)
def forget():
    with forgetting() as undo:
        yield undo


@pytest.fixture
def decay():
    return load_plugin(str(DECAY))


@pytest.fixture
def plugin(tmp_path):
    """plugin(text) is a file with that text after the usual imports."""

    def write(text, name="own.py"):
        head = "from typing import Literal\nimport structattn\nfrom structattn.settings import *\n"
        (tmp_path / name).write_text(head + text)
        return tmp_path / name

    return write


@pytest.fixture(scope="session")
def dyck(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dyck") / "data"
    prepare_formal_language(folder, "dyck", sizes=FormalLanguageSizes(20, 10, 2, (6, 8), (6, 8)))
    return folder


@pytest.fixture(scope="session")
def tree(dyck):
    """tree(**settings) are settings of a run with the mechanism."""
    model = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": "1.decay-4+decay"}
    training = {"max_updates": 4, "validate_every": 2, "num_threads": 1}
    return lambda **settings: {
        "task": "formal_language", "data": str(dyck), "model": model, "training": training, **settings
    }  # fmt: skip


@pytest.fixture(scope="session")
def trained(tree, tmp_path_factory):
    """A run, whose plugin is forgotten."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "recipe.yaml").write_text(json.dumps(tree()))
    with forgetting():
        assert invoke("train", folder / "recipe.yaml", "-o", folder / "run", "--plugin", DECAY).exit_code == 0
    return folder / "run"


@pytest.fixture
def recipe(tree, tmp_path):
    """recipe(**settings) is a file with these settings."""

    def write(path="recipe.yaml", **settings):
        (tmp_path / path).write_text(json.dumps(tree(**settings)))
        return tmp_path / path

    return write


@pytest.fixture
def structattn():
    """structattn("evaluate", run) runs a command in this process."""
    return invoke
