"""What all settings share: they are frozen, and an unknown key is an error."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator


class Settings(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


def from_name(value: Any) -> Any:
    """The name of a kind stands for the kind with its defaults."""
    return {"kind": value} if isinstance(value, str) else value


def discriminated_by(field: str, default: str) -> Discriminator:
    """Choose among kinds of settings by ``field``; where it is left out, ``default`` is meant."""

    def kind(value: Any) -> Any:
        return value.get(field, default) if isinstance(value, dict) else getattr(value, field, None)

    return Discriminator(kind)
