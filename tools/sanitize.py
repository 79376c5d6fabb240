"""Run the tests of the operators with kernels that contain AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/sanitize.py FOLDER [PYTEST_ARGUMENT ...]

FOLDER holds the modules that `make sanitize` builds. The module for the newest instruction set of this processor runs
all quick tests of the operators; those for the others run the comparisons with the definition. A report ends its test
process, and this script with 1.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from structattn.operators.common.kernels import INSTRUCTION_SETS
from structattn.support.devices import processor_flags

# Its processes interpret or compile Triton kernels, and load the installed modules.
TESTS = [
    "tests/operators",
    "tests/fast/test_residual_sublayers.py",
    "--ignore=tests/operators/common/test_gpu_kernels.py",
    "-m",
    "not slow",
]
COMPARISONS = ["-k", "definition or hostile or large_logits or indexed"]
OPTIONS = {
    # Python and torch keep memory until the process ends.
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def preloaded() -> str:
    """Return the libraries that must be loaded before Python: the sanitizer's, and the one whose functions it wraps."""
    names = ("libasan.so", "libstdc++.so")
    paths = (
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    )
    return " ".join(path.stdout.strip() for path in paths)


def commands(arguments: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Return the instruction sets of this processor, newest first, and the arguments of pytest for each."""
    usable = [name for name, needed in INSTRUCTION_SETS.items() if needed <= processor_flags()]
    for name in usable:
        selection = [] if name == usable[0] else COMPARISONS
        yield name, ["-q", "-p", "sanitized_kernels", "-p", "no:cacheprovider", *TESTS, *selection, *arguments]


def main() -> int:
    """Run the tests for each instruction set."""
    folder, *arguments = sys.argv[1:]
    here = str(Path(__file__).parent)
    environment = os.environ | OPTIONS | {"LD_PRELOAD": preloaded(), "PYTHONPATH": here, "KERNELS": folder}
    for name, command in commands(arguments):
        sys.stdout.write(f"kernels for {name}\n")
        sys.stdout.flush()
        variables = environment | {"INSTRUCTION_SET": name}
        result = subprocess.run([sys.executable, "-m", "pytest", *command], env=variables, check=False)
        if result.returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
