"""The limits of a run, which may change when it is resumed."""

from collections.abc import Mapping
from typing import Any

from structattn.settings.run import RunSettings, resolve_settings
from structattn.support.errors import SettingsError

LIMITS = ("max_epochs", "max_updates", "max_minutes", "early_stopping_patience")
"""Fields of the training settings that only say when a run ends."""


def limits_of(settings: RunSettings) -> dict[str, Any]:
    """Return the limits by name; None where there is no limit."""
    return {name: getattr(settings.training, name) for name in LIMITS}


def with_limits(settings: RunSettings, limits: Mapping[str, Any]) -> RunSettings:
    """Return the settings with other limits; those not given stay.

    Raises:
        SettingsError: a name is not that of a limit, or a value is invalid.
    """
    if unknown := sorted(limits.keys() - {*LIMITS}):
        raise SettingsError(f"training.{unknown[0]}: is not a limit; the limits of a run are {', '.join(LIMITS)}")
    tree = settings.model_dump(mode="json")
    tree["training"] |= limits
    return resolve_settings(tree, source="limits")
