"""Lazy exports: names of a package that are imported when they are first used."""

import importlib
from collections.abc import Callable, Mapping


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level ``__getattr__`` (PEP 562) that imports exported names on first use.

    Args:
        package: ``__name__`` of the package.
        modules: exported name -> the module that defines it.
    """

    def __getattr__(name: str) -> object:  # noqa: N807 - the hook that Python calls
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return __getattr__
