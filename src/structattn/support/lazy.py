"""Names that are imported when they are first used: those of a package, and functions that need an optional library."""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package (PEP 562) that import exported names on first use.

    Args:
        package: ``__name__`` of the package.
        modules: exported name -> the module that defines it; a subpackage is exported under its own name:
            ``{"attention": "structattn.attention"}`` in ``structattn``, unless it defines that name: then the name
            stands for its own, ``operators.softmax_attention`` for the function, also once the subpackage is imported.
    """
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


def lazy_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports ``name`` from ``module`` when it is first called, and calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call
