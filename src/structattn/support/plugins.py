"""Entries by name, built in or registered by plugins; and the plugins: files of Python, or installed packages.

A plugin runs with all rights of the user. It is executed only if the user names it: never because a run folder does.
"""

import hashlib
import importlib
import inspect
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from structattn.support.errors import StructattnError, UsageError
from structattn.support.reading import read_bytes

GROUP = "structattn.plugins"
"""The group of entry points that name modules which register something when they are imported."""
_EntryT = TypeVar("_EntryT")


@dataclass(frozen=True)
class Plugin:
    """What has registered an entry: a file of Python, or a package.

    Args:
        name: that of the file or of the entry point, by which users name it; of a package without one, its own.
        version: that of the distribution, or ``__version__`` of the file.
        sha256: the digest of the file, or of all Python files of the package; None in an interactive session.
        module: the name of the module that is imported.
        path: the file; None for a package and in an interactive session.
    """

    name: str
    version: str | None
    sha256: str | None
    module: str
    path: Path | None = None

    @property
    def record(self) -> dict[str, str | None]:
        """Name, version and digest, for run cards."""
        return {name: value for name, value in asdict(self).items() if name in ("name", "version", "sha256")}


class Registry(Mapping[str, _EntryT]):
    """Entries by name.

    Attributes:
        plugins: name -> the plugin that registered the entry; without those that are built in.
    """

    def __init__(self, what: str, entries: Mapping[str, _EntryT]) -> None:
        self.what, self.entries, self.plugins = what, dict(entries), dict[str, Plugin]()
        REGISTRIES.append(self)

    def __getitem__(self, name: str) -> _EntryT:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, name: str, entry: _EntryT, plugin: Plugin) -> None:
        """Add an entry; a plugin that is executed again, as in a notebook, replaces its own.

        Raises:
            UsageError: the name is taken, or no name.
        """
        if not re.fullmatch(r"[\w-]+", name):
            raise UsageError(f"{self.what} {name!r}: expected a name of letters, digits, underscores and hyphens")
        owner = self.plugins.get(name)
        if name in self.entries and (owner is None or (owner.name, owner.path) != (plugin.name, plugin.path)):
            taken = "built in" if owner is None else f"registered by {owner.path or owner.name}"
            raise UsageError(f"{self.what} {name!r} is {taken}; expected another name")
        self.entries[name], self.plugins[name] = entry, plugin


REGISTRIES: list[Registry[Any]] = []


def own_entry_hint(known: Iterable[str]) -> str:
    """Return the end of a message about a name that is none of the known ones; empty if plugins add none to these."""
    names = set(known)
    is_open = bool(names) and any(names <= registry.keys() for registry in REGISTRIES)
    way = "needs --plugin FILE.py, or plugins: [FILE.py] in a recipe; in Python, import the file that registers it"
    return f"; one of your own {way}" if is_open else ""


class Entry(Protocol):
    """What can be registered."""

    def register(self, plugin: Plugin) -> None:
        """Add this to its registry."""


def register(*entries: Entry) -> None:
    """Register mechanisms, positions, formal languages, transductions or tasks under their names.

        structattn.register(Mechanism(Decay, layer=lambda d_model, decay: DecayAttention(d_model, decay.half_life)))

    They can then be used like those that are built in. The module that calls this is their plugin: a run that uses
    them records its name, version and digest.

    Args:
        entries: ``Mechanism``, ``Positions`` (``structattn.settings``), ``FormalLanguage``, ``Transduction`` or
            ``TaskKind`` (``structattn.tasks``).

    Raises:
        UsageError: a name is taken, or an entry is incomplete or something else, such as a layer.
    """
    plugin = _plugin_of(sys._getframe(1).f_globals)
    for entry in entries:
        if isinstance(entry, type) or not callable(getattr(entry, "register", None)):
            kind = f"the class {entry.__name__}" if isinstance(entry, type) else f"a {type(entry).__name__}"
            expected = "a Mechanism, Positions, FormalLanguage, Transduction or TaskKind"
            raise UsageError(f"structattn.register got {kind}; expected {expected}")
        entry.register(plugin)


def require_arguments(what: str, function: Callable[..., object] | None, *names: str) -> None:
    """Check that a function, if there is one, takes these arguments.

    Raises:
        UsageError: it does not.
    """
    if function is None:
        return
    try:
        inspect.signature(function).bind(*names)
    except ValueError:  # of a function in C that does not tell
        return
    except TypeError as error:
        raise UsageError(f"{what}: {error}; expected a function of ({', '.join(names)})") from None


def loaded_plugins() -> list[Plugin]:
    """Return the plugins that have registered something, in the order of their first entries."""
    return list(dict.fromkeys(plugin for registry in REGISTRIES for plugin in registry.plugins.values()))


def plugins_of(names: Collection[str]) -> list[Plugin]:
    """Return the plugins that have registered entries with one of these names."""
    used = [plugin for registry in REGISTRIES for name, plugin in registry.plugins.items() if name in names]
    return sorted(set(used), key=lambda plugin: plugin.name)


def load_plugin(name: str, folder: Path = Path()) -> Plugin:
    """Execute a plugin that the user has named, unless it is loaded.

    Args:
        name: the path of a file that ends in ``.py``; or the name of an entry point of the group
            ``structattn.plugins``.
        folder: what the path is relative to.

    Raises:
        UsageError: there is no such plugin, it raises an error, or it registers nothing.
    """
    if name.endswith(".py"):
        return _load_file(folder / name)
    found = [entry for entry in metadata.entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise UsageError(f"plugin {name!r}: is not installed{_installed()}; expected FILE.py, or an installed one")
    package = found[0].module.partition(".")[0]
    return _executed(name, lambda plugin: plugin.module.partition(".")[0] == package, found[0].load)


def load_again(plugin: Plugin) -> None:
    """Load a plugin in another process than the one that has loaded it.

    Raises:
        UsageError: its file has changed.
    """
    if plugin.path is None:
        importlib.import_module(plugin.module)
    elif (now := _load_file(plugin.path)).sha256 != plugin.sha256:
        raise UsageError(f"plugin {plugin.path}: has changed: SHA-256 was {plugin.sha256} and is now {now.sha256}")


def require_loaded(name: str, record: Mapping[str, str | None] = MappingProxyType({})) -> Plugin:
    """Return the plugin that settings or a run card name, if it is loaded.

    Args:
        name: its name, or the path of its file.
        record: its version and digest, where they are known.

    Raises:
        UsageError: it is not loaded; the message has the option that loads it.
    """
    for plugin in loaded_plugins():
        if plugin.name == Path(name).name:
            return plugin
    facts = "".join(f", {key} {value}" for key, value in record.items() if key != "name" and value)
    raise UsageError(
        f"needs the plugin {name}{facts}, which is not loaded, and what a run folder names is never executed; if you "
        f"trust it, add --plugin {shlex.quote(name)}; in Python, import it first"
    )


def _installed() -> str:
    names = sorted({entry.name for entry in metadata.entry_points(group=GROUP)})
    return f" among {', '.join(names)}" if names else ""


class _Source(SourceLoader):
    """Executes the bytes whose digest is recorded, and neither reads nor writes compiled files."""

    def __init__(self, path: Path) -> None:
        self.name, self.path, self.content = path.name, path.resolve(), read_bytes(path)

    def get_filename(self, fullname: str) -> str:
        """Return the path."""
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        """Return the source."""
        return self.content


def _load_file(path: Path) -> Plugin:
    try:
        source = _Source(path)
    except OSError as error:
        raise UsageError(f"plugin {path}: {error.strerror or error}") from None
    digest = hashlib.sha256(source.content).hexdigest()
    name = f"structattn_plugin_{path.stem}_{digest[:8]}"

    def execute() -> None:
        spec = spec_from_loader(name, source)
        assert spec is not None
        sys.modules[name] = module = module_from_spec(spec)  # where dataclasses and pickle look for it
        try:
            source.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise

    return _executed(str(path), lambda plugin: (plugin.path, plugin.sha256) == (source.path, digest), execute)


def _executed(name: str, is_it: Callable[[Plugin], bool], execute: Callable[[], object]) -> Plugin:
    """Return the loaded plugin; execute it first, unless it is loaded."""
    if not any(map(is_it, loaded_plugins())):
        try:
            execute()
        except StructattnError as error:
            raise UsageError(f"plugin {name}: {error}") from None
        except (Exception, SystemExit) as error:  # a script without a guard of __main__ ends the whole program
            failure = UsageError(f"plugin {name}: {type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc().rstrip())
            raise failure from None
    for plugin in filter(is_it, loaded_plugins()):
        return plugin
    raise UsageError(f"plugin {name}: registers nothing; expected a call of structattn.register")


def _has_file(module: str) -> bool:
    """Return whether a module is loaded, and no namespace package."""
    return getattr(sys.modules.get(module), "__file__", None) is not None


def _plugin_of(variables: Mapping[str, Any]) -> Plugin:
    """Return the plugin to which a module with these global variables belongs.

    Raises:
        UsageError: its version is no text.
    """
    module, file = str(variables["__name__"]), variables.get("__file__")
    package, version = module.partition(".")[0], variables.get("__version__")
    root = getattr(sys.modules.get(package), "__path__", None) if _has_file(package) else None
    named = [each for each in metadata.entry_points(group=GROUP) if each.module.partition(".")[0] == package]
    named.sort(key=lambda each: each.module != module)  # of several entry points of a package, that of this module
    if named:
        version = named[0].dist.version if named[0].dist is not None else version
    if not isinstance(version, str | None):
        raise UsageError(f"__version__ is {version!r}; expected text")
    loader = variables.get("__loader__")
    own_name = loader.name if isinstance(loader, _Source) else file and Path(file).name  # a link has a name of its own
    name = named[0].name if named else own_name if own_name and not root else package
    if root:
        files = sorted(path for folder in root for path in Path(folder).rglob("*.py"))
    else:
        files = [] if file is None else [Path(file).resolve()]
    contents = [loader.content] if isinstance(loader, _Source) else [path.read_bytes() for path in files]
    digest = hashlib.sha256(b"".join(contents)).hexdigest() if contents else None
    return Plugin(name, version, digest, module, None if root or named or not files else files[0])
