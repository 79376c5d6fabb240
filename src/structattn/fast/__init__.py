"""Fast forms of several modules at once, which are checked against the modules before they are used.

Nothing below imports this package: a model is what its modules say. ``structattn.accelerate`` calls ``accelerate``.
"""

from structattn.fast.accelerate import accelerate

__all__ = ["accelerate"]
