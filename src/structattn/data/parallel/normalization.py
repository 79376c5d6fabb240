"""How lines are made alike before anything else."""

import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Normalization:
    """Lines with single spaces between their words and none at their ends.

    Spaces and tabs are what parts words; NFKC makes spaces of most others, such as U+00A0 and U+3000.

    Args:
        nfkc: put lines into Unicode's NFKC.
        lowercase: make letters small, once NFKC has made letters of what looks like them.
    """

    nfkc: bool = True
    lowercase: bool = False

    def __call__(self, line: str) -> str:
        """The line, normalised; again to normalise it changes nothing."""
        text = self._nfkc(line)
        if self.lowercase:
            text = self._nfkc(text.lower())
        return " ".join(word for word in text.replace("\t", " ").split(" ") if word)

    def _nfkc(self, text: str) -> str:
        return unicodedata.normalize("NFKC", text) if self.nfkc else text

    def description(self) -> dict[str, bool]:
        """What the header keeps."""
        return asdict(self)

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> "Normalization":
        """Undo ``description``; other keys are ignored.

        Raises:
            ValueError: a field is missing, or not true or false.
        """
        values = {field.name: description.get(field.name) for field in fields(cls)}
        for name, value in values.items():
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}; expected true or false")
        return cls(**values)  # type: ignore[arg-type]  # checked just before
