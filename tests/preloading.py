"""Import the whole package at once, for processes whose forks would otherwise import parts of it again and again."""

import atexit
import contextlib
import gc
import importlib
import pkgutil
import re


def import_everything():
    """Import all modules of the package but those for GPUs; torch's compiler, which takes seconds, as well.

    Forks look for no garbage in what is imported, which would copy its memory.
    """
    import torch._dynamo  # noqa: F401

    import structattn

    for module in pkgutil.walk_packages(structattn.__path__, "structattn.", onerror=lambda name: None):
        if not re.search(r"gpu_kernel|_kernels_|__main__", module.name):
            with contextlib.suppress(Exception):  # an optional library is missing
                importlib.import_module(module.name)
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries report what is alive at the end
