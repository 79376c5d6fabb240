"""Structured attention in transformers: stack attention and its baselines behind one contract.

>>> import structattn
>>> run = structattn.load("runs/stack")
>>> y = structattn.attention.SoftmaxAttention(d_model=32, num_heads=4)(x)

Everything is imported at first use, so ``import structattn`` loads neither torch nor pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from structattn.support.version import __version__

if TYPE_CHECKING:
    from structattn import attention, models, operators
    from structattn.evaluation.run_evaluation import evaluate
    from structattn.inference.load import load
    from structattn.settings.run import load_settings
    from structattn.training.run_training import train

__all__ = ["__version__", "attention", "evaluate", "load", "load_settings", "models", "operators", "train"]

_PACKAGES = {"attention", "models", "operators"}
_FUNCTIONS = {
    "evaluate": "structattn.evaluation.run_evaluation",
    "load": "structattn.inference.load",
    "load_settings": "structattn.settings.run",
    "train": "structattn.training.run_training",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"structattn.{name}")
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'structattn' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = globals()[name] = getattr(import_module(_FUNCTIONS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
