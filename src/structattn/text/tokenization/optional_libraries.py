"""The optional libraries that train and apply subword models."""

import importlib
from typing import Any

from structattn.support.errors import UsageError
from structattn.support.optional import install_command


def import_library(name: str, purpose: str) -> Any:
    """Import a library of ``structattn[mt]``.

    Args:
        name: the name of the module.
        purpose: what needs it, for the message.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        reason = f"{name}, which is not installed ({error}); {install_command('mt')}"
        raise UsageError(f"{purpose} needs the optional library {reason}") from None
