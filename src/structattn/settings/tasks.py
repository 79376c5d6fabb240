"""Names and descriptions of the tasks."""

from collections.abc import Mapping
from types import MappingProxyType

MASKED_LANGUAGE_MODELING = "masked_language_modeling"

TASK_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "formal_language": "predict the next symbol of strings of a formal language",
        "language_modeling": "predict the next token of text, by sentences or as a continuous stream",
        MASKED_LANGUAGE_MODELING: "predict masked tokens of text from the tokens on both sides",
        "masked_transduction": "map an input string to an output string, predicting all symbols at once",
        "autoregressive_transduction": "map an input string to an output string, symbol by symbol",
        "translation": "translate sentences from one language to another",
    }
)

TRANSFORMATION_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "question": "question formation: move the main auxiliary, not the first one, to the front",
        "tense": "tense reinflection: verbs in the present agree with their subject, not with the nearest noun",
    }
)
