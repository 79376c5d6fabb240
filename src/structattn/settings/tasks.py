"""The tasks that a run can train, each with one line of description."""

from collections.abc import Mapping
from types import MappingProxyType

TASK_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "formal_language": "predict the symbols of a formal language",
        "language_modeling": "predict the tokens of text, in sentences or as a stream",
        "masked_transduction": "transform a string into another, all symbols of the output at once",
        "autoregressive_transduction": "transform a string into another, symbol by symbol",
        "translation": "translate lines of one language into another",
    }
)
