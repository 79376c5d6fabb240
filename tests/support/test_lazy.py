"""Packages with lazy exports import nothing heavy, and export what they list."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ["explorer", "loading", "report", "sweeps"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_can_be_imported(package):
    module = importlib.import_module(f"structattn.{package}")
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
        assert f"``{name}" in module.__doc__
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'; it has "):
        module.nothing  # noqa: B018


def test_the_packages_do_not_import_torch():
    imports = ", ".join(f"structattn.{package}" for package in PACKAGES)
    program = f"import sys, {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
