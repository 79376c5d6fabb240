"""The package imports where the modules and flags that only POSIX has are missing, as on Windows."""

import subprocess
import sys

import pytest

IMPORT_EVERYTHING = """
import importlib, os, pkgutil, sys

os.environ.setdefault("MPLBACKEND", "agg")
import filelock, torch, multiprocessing.forkserver, numpy, matplotlib.pyplot  # have fallbacks for these modules
for name in ("transformers", "ray", "submitit"):  # not our code
    sys.modules[name] = None
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "sched_getaffinity", "pread", "fchmod", "fork"):
    delattr(os, name)

import structattn

failed = []
for module in pkgutil.walk_packages(structattn.__path__, "structattn.", onerror=lambda _: None):
    if "gpu_kernel" in module.name or "_kernels_" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in {"transformers", "ray", "submitit"}:
            continue
        failed.append(f"{module.name}: {error!r}")
    except Exception as error:
        if "pip install" not in str(error):  # an optional library
            failed.append(f"{module.name}: {error!r}")

from pathlib import Path
from structattn.support.files import sha256_of_file, write_atomically, write_folder_atomically
from structattn.support.locks import exclusive_lock
from structattn.support.environment import require_address_space

folder = Path(sys.argv[1])
with exclusive_lock(folder / "lock", "training"), write_folder_atomically(folder / "run") as run:
    write_atomically(run / "settings.yaml", "task: x")
sha256_of_file(folder / "run" / "settings.yaml")
require_address_space()
sys.exit("\\n".join(failed) or None)
"""


@pytest.mark.apart
def test_every_module_imports_without_what_only_posix_has(tmp_path):
    command = [sys.executable, "-c", IMPORT_EVERYTHING, str(tmp_path)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
