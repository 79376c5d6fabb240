"""Import packages at once, for processes whose forks would otherwise import parts of them again and again."""

import atexit
import contextlib
import gc
import importlib
import pkgutil
import re


def import_everything(*packages):
    """Import all modules of some packages, or of the whole, but those for GPUs; torch's compiler, which takes seconds.

    Forks look for no garbage in what is imported, which would copy its memory.
    """
    import torch._dynamo  # noqa: F401

    for package in packages or ("structattn",):
        folders = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folders, f"{package}.", onerror=lambda name: None):
            if not re.search(r"gpu_kernel|_kernels_|__main__", module.name):
                with contextlib.suppress(Exception):  # an optional library is missing
                    importlib.import_module(module.name)
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries report what is alive at the end
