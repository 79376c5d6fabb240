"""Format numbers and tokens for reports."""

from collections.abc import Mapping
from typing import Any

_SHOWN = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "": "∅", "<bos>": "▷", "<eos>": "◁"}
MISSING = "—"


def visible(token: str, longest: int = 14) -> str:
    """Format a token as a label: whitespace and control characters made visible, cut to ``longest`` characters."""
    if token in _SHOWN:
        return _SHOWN[token]
    shown = "".join(_SHOWN.get(c, c if c.isprintable() else c.encode("unicode_escape").decode()) for c in token)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def unbroken(text: str) -> str:
    """Replace hyphens by non-breaking hyphens."""
    return text.replace("-", "\N{NON-BREAKING HYPHEN}")


def nats(value: float | None) -> str:
    """Format a cross-entropy or a difference of two, in nats."""
    return MISSING if value is None else f"{value:.4f}"


def perplexity(value: float | None) -> str:
    """Format a perplexity with about five digits."""
    if value is None:
        return MISSING
    return f"{value:.4f}" if value < 10 else f"{value:,.2f}"


def percent(value: float | None) -> str:
    """Format a fraction, such as an accuracy, in percent."""
    return MISSING if value is None else f"{value:.2%}"


def points(value: float | None) -> str:
    """Format a score from 0 to 100, such as BLEU."""
    return MISSING if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Format a time as hours, minutes and seconds, without those that are 0 at the front."""
    if seconds is None:
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def count(value: int | None) -> str:
    """Format an integer with thousands separators."""
    return MISSING if value is None else f"{value:,}"


def flattened(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten a nested mapping into (dotted path, text) pairs, in order."""
    pairs: list[tuple[str, str]] = []
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            pairs += flattened(value, f"{path}.")
        elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            pairs.append((path, " ".join(value)))
        else:
            pairs.append((path, MISSING if value is None else str(value)))
    return pairs
