"""Normalization of lines before tokenization."""

import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Normalization:
    """Normalizes a line: Unicode form, case, and single spaces between words, none at the ends.

    Words are separated by spaces and tabs; NFKC turns most other spaces, such as U+00A0 and U+3000, into spaces.

    Args:
        nfkc: apply Unicode normalization form NFKC.
        lowercase: convert to lower case, after NFKC.
    """

    nfkc: bool = True
    lowercase: bool = False

    def __call__(self, line: str) -> str:
        """Return the normalized line; normalizing it again changes nothing."""
        text = self.characters(line)
        if "\t" not in text and "  " not in text and text[:1] != " " and text[-1:] != " ":
            return text
        return " ".join(word for word in text.replace("\t", " ").split(" ") if word)

    def characters(self, text: str) -> str:
        """Return one or more lines with normalized characters, but spaces and tabs as they are.

        Neither NFKC nor lower case depends on what is beyond a line feed, so lines can be normalized together.
        """
        normalized = self._nfkc(text)
        return self._nfkc(normalized.lower()) if self.lowercase else normalized

    def _nfkc(self, text: str) -> str:
        return unicodedata.normalize("NFKC", text) if self.nfkc else text

    def description(self) -> dict[str, bool]:
        """Return the fields that the header of a prepared folder stores."""
        return asdict(self)

    @classmethod
    def describes(cls, description: Mapping[str, Any]) -> bool:
        """Return whether a header's description contains a normalization."""
        return any(field.name in description for field in fields(cls))

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Normalization":
        """Restore what ``description`` returned; other keys are ignored.

        Raises:
            ValueError: a field is missing or not a boolean.
        """
        values = {field.name: description.get(field.name) for field in fields(cls)}
        for name, value in values.items():
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}; expected true or false")
        return cls(**values)  # type: ignore[arg-type]  # checked just before
