"""The public API: lazy, complete, documented, and in the reference."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import structattn
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "structattn"
PACKAGES = sorted(
    ".".join(("structattn", *path.parent.relative_to(SOURCES).parts))
    for path in SOURCES.rglob("__init__.py")
    if path.parent != SOURCES
)
INTERNAL = (
    "structattn.support",
    "structattn.fast",
    "structattn.cli",
)  # need not export anything


def test_importing_the_package_loads_neither_torch_nor_pydantic():
    code = "import structattn, sys; sys.exit(bool({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", structattn.__all__)
def test_every_public_name_of_the_root_exists(name):
    assert getattr(structattn, name) is not None
    assert name in dir(structattn)


def test_a_run_is_trained_evaluated_and_loaded_by_the_functions_of_the_root(tmp_path):
    sizes = FormalLanguageSizes(train=40, valid=8, test_per_length=1)
    prepare_formal_language(tmp_path / "data", "dyck", sizes=sizes)
    (tmp_path / "settings.yaml").write_text(
        f"{{task: formal_language, data: {tmp_path}/data, training: {{max_updates: 2}}}}"
    )
    settings = structattn.load_settings(f"{tmp_path}/settings.yaml", ["model.layers=1.superposition-4"])
    assert structattn.train(settings, f"{tmp_path}/run").update == 2
    assert structattn.evaluate(f"{tmp_path}/run", "valid").num_sequences == 8
    run = structattn.load(f"{tmp_path}/run")
    assert run.settings == settings
    assert not run.model.training
    assert run.metadata["result"]["update"] == 2
    (records,) = run.explain(["".join(run.prepared.vocabulary.symbols[3:5])])
    assert [record.layer for record in records]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no attribute 'lode'; it has .*load"):
        _ = structattn.lode


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_package_exists_and_is_documented(package):
    module = import_module(package)
    assert module.__doc__
    exported = getattr(module, "__all__", [])
    assert exported or package.count(".") > 1 or package in {*INTERNAL, "structattn.interop"}
    for name in exported:
        value = getattr(module, name)
        described = (
            inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else name in module.__doc__
        )
        assert described, f"{package}.{name}"


@pytest.mark.parametrize("package", [name for name in PACKAGES if name.count(".") == 1 and name not in INTERNAL])
def test_public_functions_take_paths_as_text(package):
    module = import_module(package)
    functions = {name: getattr(module, name) for name in getattr(module, "__all__", [])}
    paths = {
        f"{name}.{each.name}": each.annotation
        for name, function in functions.items()
        if inspect.isfunction(function)
        for each in inspect.signature(function).parameters.values()
        if "Path" in str(each.annotation)
    }
    assert [name for name, annotation in paths.items() if "PathLike" not in str(annotation)] == []


def test_the_reference_has_a_page_for_every_public_package():
    pages = {page.stem for page in (ROOT / "docs" / "reference").glob("structattn*.md")}
    packages = {name for name in PACKAGES if name.count(".") == 1 and name not in INTERNAL}
    assert pages == {"structattn", "structattn.attention.positions", "structattn.models.builders"} | packages
