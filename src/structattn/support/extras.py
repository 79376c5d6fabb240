"""How to install the packages of an optional extra."""

from importlib import metadata


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
