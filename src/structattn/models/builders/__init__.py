"""Build models from settings.

``build_model`` returns the model of settings and a number of ids, with initial weights.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.models.builders.models import build_model

__all__ = ["build_model"]

__getattr__, __dir__ = lazy_exports(__name__)
