"""Seeds and random generators that are pure functions of a seed and a name."""

import hashlib

import numpy as np


def derived_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed that depends on ``seed`` and on every name, and on nothing else.

    Two uses of one seed under different names draw unrelated numbers.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """A counter-based numpy generator for (seed, names)."""
    return np.random.Generator(np.random.Philox(derived_seed(seed, *names)))
