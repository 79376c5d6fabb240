"""Seeds and random generators as pure functions of a seed and names."""

import hashlib

import numpy as np


def derived_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that is a hash of ``seed`` and the names.

    Uses of one seed under different names draw unrelated numbers.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a counter-based numpy generator for (seed, names)."""
    return np.random.Generator(np.random.Philox(derived_seed(seed, *names)))
