"""Files and installed packages that register something, and those that cannot be loaded."""

import hashlib
import pickle
import py_compile
import sys
from importlib.util import cache_from_source

import pytest

from structattn.settings import MECHANISMS, RunSettings
from structattn.support.errors import UsageError
from structattn.support.plugins import load_plugin, loaded_plugins, require_loaded

TWICE = """
class Twice(Settings):
    '''Nothing, twice.'''

    attention: Literal["twice"]

structattn.register(Mechanism(Twice, layer=lambda d_model, settings: None))
"""


def test_a_file_is_known_by_name_version_and_digest(plugin):
    path = plugin(f"__version__ = '1.2'\n{TWICE}")
    loaded = load_plugin(str(path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.record == {"name": "own.py", "version": "1.2", "sha256": digest}
    assert MECHANISMS.plugins == {"twice": loaded}
    assert load_plugin(str(path)) == loaded  # is not executed again
    assert load_plugin("own.py", path.parent) == loaded


def test_a_file_of_the_same_name_in_another_folder_replaces_nothing(plugin):
    path = plugin(TWICE)
    load_plugin(str(path))
    other = path.parent / "other" / path.name
    other.parent.mkdir()
    other.write_text(path.read_text())
    with pytest.raises(UsageError, match=r"mechanism 'twice' is registered by .*own\.py; expected another name"):
        load_plugin(str(other))


def test_a_link_has_its_own_name(plugin):
    path = plugin(TWICE)
    target = path.rename(path.with_name("5f2c.py"))
    path.symlink_to(target)
    assert load_plugin(str(path)).name == "own.py"
    assert require_loaded("own.py").path == target


def test_an_edited_file_replaces_its_entries(plugin):
    first = load_plugin(str(plugin(TWICE)))
    second = load_plugin(str(plugin(f"{TWICE}# edited\n")))
    assert first.sha256 != second.sha256
    assert loaded_plugins() == [second]


def test_settings_of_a_changed_file_are_not_unpickled(plugin, forget):
    load_plugin(str(plugin(TWICE)))
    content = pickle.dumps(RunSettings(task="formal_language", data="data", model={"layers": "twice"}))
    forget()
    assert pickle.loads(content).model.layers[0].attention == "twice"
    plugin(f"{TWICE}# edited\n")
    forget()
    with pytest.raises(UsageError, match=r"plugin .*own\.py: has changed: SHA-256 was \w+ and is now \w+"):
        pickle.loads(content)


def test_compiled_files_are_neither_read_nor_written(plugin, tmp_path):
    path = plugin("raise RuntimeError")
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    plugin(TWICE)
    before = path.with_name("__pycache__").stat().st_mtime_ns
    load_plugin(str(path))
    assert path.with_name("__pycache__").stat().st_mtime_ns == before
    assert cache_from_source(str(path)).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0\n", r"plugin .*own.py: ZeroDivisionError: division by zero"),
        ("def\n", r"plugin .*own.py: SyntaxError: invalid syntax \(own.py, line 4\)"),
        ("import sys\nsys.exit(0)\n", r"plugin .*own.py: SystemExit: 0"),
        ("import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
        (f"__version__ = 2\n{TWICE}", "own.py: __version__ is 2; expected text"),
        (f"__version__ = [1]\n{TWICE}", r"own.py: __version__ is \[1\]; expected text"),
        ("size = 3\n", "own.py: registers nothing; expected a call of structattn.register"),
    ],
)
def test_a_file_that_fails_is_refused(plugin, text, message):
    modules = set(sys.modules)
    with pytest.raises(UsageError, match=message) as caught:
        load_plugin(str(plugin(text)))
    expected = "nothing" in message or "expected text" in message
    assert expected or "own.py" in caught.value.__notes__[0]  # the traceback
    assert not any(name.startswith("structattn_plugin_") for name in set(sys.modules) - modules) or "nothing" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py", "plugin missing.py: No such file or directory"),
        ("decay", "plugin 'decay': is not installed; expected FILE.py, or an installed one"),
    ],
)
def test_what_is_not_there_is_refused(name, message):
    with pytest.raises(UsageError, match=message):
        load_plugin(name)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution with a package of two modules, and an entry point."""
    package, metadata = tmp_path / "fake_twice", tmp_path / "twice-3.4.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "entry.py").write_text(
        f"from typing import Literal\nimport structattn\nfrom structattn.settings import *\n{TWICE}"
    )
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: twice\nVersion: 3.4\n")
    entries = "again = fake_twice\ntwice = fake_twice.entry\n"  # of which the second is that of the module
    (metadata / "entry_points.txt").write_text(f"[structattn.plugins]\n{entries}")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_an_entry_point_is_loaded_by_its_name(installed):
    loaded = load_plugin("twice")
    contents = b"".join((installed / name).read_bytes() for name in ("__init__.py", "entry.py"))
    assert loaded.record == {"name": "twice", "version": "3.4", "sha256": hashlib.sha256(contents).hexdigest()}
    assert load_plugin("twice") == loaded
    with pytest.raises(UsageError, match="plugin 'thrice': is not installed among again, twice"):
        load_plugin("thrice")


@pytest.mark.usefixtures("installed")
def test_an_installed_plugin_is_listed_with_its_name(structattn):
    assert "Nothing, twice." not in structattn("list", "--json").output
    assert '"twice": "Nothing, twice. (twice)"' in structattn("list", "--json", "--plugin", "twice").output
