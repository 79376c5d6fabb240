"""Optional libraries: whether they are installed, and how to install them."""

import importlib
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from structattn.support.errors import UsageError


def require_modules(extra: str, *names: str) -> None:
    """Check that libraries are installed, without importing them.

    Args:
        extra: the extra of this package that installs them.
        names: of the modules.

    Raises:
        UsageError: one is not installed.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(f"{missing[0]} is not installed; {install_command(extra)}")


def import_library(name: str, extra: str, purpose: str) -> Any:
    """Import an optional library.

    Args:
        name: the name of the module.
        extra: the extra of this package that installs it.
        purpose: what needs it, for the message.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        reason = f"{name}, which is not installed ({error}); {install_command(extra)}"
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
    found: list[str] = []
    for requirement in requirements:
        name, _, marker = (part.strip() for part in requirement.partition(";"))
        if f"extra == '{extra}'" not in marker.replace('"', "'"):
            continue
        inner = name.removeprefix("structattn[").removesuffix("]") if name.startswith("structattn[") else ""
        found += _packages(inner) if inner else [name]
    return found
