"""Structured attention in transformers: stack attention and its baselines behind one contract.

>>> import structattn
>>> run = structattn.load("runs/stack")
>>> y = structattn.attention.SoftmaxAttention(d_model=32, num_heads=4)(x)

Everything is imported at first use, so ``import structattn`` loads neither torch nor pydantic.
"""

from typing import TYPE_CHECKING

from structattn.support import __version__
from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn import attention, models, operators
    from structattn.acceleration import accelerate
    from structattn.loading.evaluate import evaluate
    from structattn.loading.runs import load
    from structattn.settings.run import load_settings
    from structattn.support.plugins import register
    from structattn.training.run_training import train

__all__ = [
    "__version__",
    "accelerate",
    "attention",
    "evaluate",
    "load",
    "load_settings",
    "models",
    "operators",
    "register",
    "train",
]

__getattr__, __dir__ = lazy_exports(__name__)
