"""Imports at first use, and of optional libraries."""

import ast
import importlib
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.abc import InspectLoader
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

from structattn.support.errors import UsageError


def require_modules(extra: str, *names: str) -> None:
    """Check that libraries are installed, without importing them.

    Raises:
        UsageError: one is not installed.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(f"{missing[0]} is not installed; {install_command(extra)}")


def import_library(name: str, extra: str, purpose: str) -> Any:
    """Import an optional library.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        library = name.partition(".")[0]
        reason = f"{library}, which is not installed ({error}); {install_command(extra)}"
        raise UsageError(f"{purpose} needs the optional library {reason}") from None


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra of structattn.

    It names the packages themselves, so that it works wherever structattn was installed from: an index or a checkout.
    """
    packages = _packages(extra)
    names = " ".join(f"'{each}'" for each in packages) if packages else f"'structattn[{extra}]'"
    return f"pip install {names}"


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra; none if structattn is not installed, but only on Python's path."""
    try:
        requirements = metadata.requires("structattn") or []
    except metadata.PackageNotFoundError:
        return []
    packages: list[str] = []
    for requirement in requirements:
        name, _, marker = (part.strip() for part in requirement.partition(";"))
        if f"extra == '{extra}'" not in marker.replace('"', "'"):
            continue
        inner = name.removeprefix("structattn[").removesuffix("]") if name.startswith("structattn[") else ""
        packages += _packages(inner) if inner else [name]
    return packages


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package (PEP 562) that import exported names on first use.

    The names and their modules are those of the imports below ``if TYPE_CHECKING:`` in the source of the package, which
    type checkers read as well. A subpackage may be one of them; where it defines its own name, that is exported:
    ``operators.softmax_attention`` is the function, also once the subpackage is imported.
    """
    modules = _imports_for_type_checkers(package)
    own_names = frozenset(name for name, module in modules.items() if module == f"{package}.{name}")

    def __getattr__(name: str) -> object:  # noqa: N807 - the hook that Python calls
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(modules)}")
        module = importlib.import_module(modules[name])
        return vars(module).get(name, module) if name in own_names else getattr(module, name)

    def __dir__() -> list[str]:  # noqa: N807 - the hook that Python calls
        return sorted({*vars(sys.modules[package]), *modules})

    class Package(ModuleType):
        """The package, in which the import of a subpackage does not hide the exported function of its name."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, vars(value).get(name, value) if name in own_names else value)

    sys.modules[package].__class__ = Package
    return __getattr__, __dir__


def _imports_for_type_checkers(package: str) -> dict[str, str]:
    """Return imported name -> module of the imports below ``if TYPE_CHECKING:`` of a package."""
    loader = cast(InspectLoader, vars(sys.modules[package])["__loader__"])
    tree = ast.parse(loader.get_source(package) or "")
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: f"{package}.{alias.name}" if node.module == package else str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def lazy_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports ``name`` from ``module`` when it is first called, and calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call
