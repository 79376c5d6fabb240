"""Pytest plugin for `make sanitize`: tests import kernels from a folder in place of the installed ones.

    KERNELS=build/sanitize INSTRUCTION_SET=avx2 PYTHONPATH=tools python -m pytest -p sanitized_kernels tests/operators

Of the modules, only that for ``INSTRUCTION_SET`` can be imported: those for others count as not built.
"""

import importlib.util
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

PACKAGE = "structattn.operators.common"
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")


def load_kernels(folder: Path, instruction_set: str) -> None:
    """Load the module of one instruction set under its installed name, and block the others."""
    for name in INSTRUCTION_SETS:
        sys.modules[f"{PACKAGE}._kernels_{name}"] = None  # type: ignore[assignment]
    name = f"_kernels_{instruction_set}"
    path = folder / (name + EXTENSION_SUFFIXES[0])
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[f"{PACKAGE}.{name}"] = module


load_kernels(Path(os.environ["KERNELS"]), os.environ["INSTRUCTION_SET"])
