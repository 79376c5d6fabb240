"""Names and descriptions of the tasks."""

from collections.abc import Mapping
from types import MappingProxyType

TASK_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "formal_language": "predict the next symbol of strings of a formal language",
        "language_modeling": "predict the next token of text, by sentences or as a continuous stream",
        "masked_transduction": "map an input string to an output string, predicting all symbols at once",
        "autoregressive_transduction": "map an input string to an output string, symbol by symbol",
        "translation": "translate sentences from one language to another",
    }
)
