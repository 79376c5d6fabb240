"""Classes of unknown words by shape and suffix, as in the preprocessing of the Penn Treebank by Dyer et al. (2016).

A class is ``UNK`` followed by what holds of the word, in this order:

| part     | the word                                                                                         |
|----------|--------------------------------------------------------------------------------------------------|
| -CAPS    | has upper-case letters, and no lower-case ones                                                   |
| -INITC   | begins with an upper-case letter, and has lower-case ones                                        |
| -LC      | has lower-case letters, and does not begin with an upper-case letter                             |
| -NUM     | has a digit                                                                                      |
| -DASH    | has a hyphen                                                                                     |
| a suffix | ends in s, but not in ss, is or us, and has three characters; or, if it has five characters and  |
|          | neither hyphen nor digit, ends in ed, ing, ion, er, est, ly, ity, y or al, the first that fits   |

So "walking" is UNK-LC-ing, "Basel-2" UNK-INITC-NUM-DASH, and "%" UNK. The position in the sentence plays no role.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

_SUFFIXES: Final = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")
_CLASS: Final = re.compile(rf"UNK(-CAPS|-INITC|-LC)?(-NUM)?(-DASH)?(-s|-{'|-'.join(_SUFFIXES)})?")


def unknown_class(word: str) -> str:
    """Return the class of an unknown word."""
    has_digit, has_hyphen = any(map(str.isdigit, word)), "-" in word
    suffix = _suffix(word.lower(), plain=not has_digit and not has_hyphen)
    return "UNK" + _shape(word) + "-NUM" * has_digit + "-DASH" * has_hyphen + suffix


def is_unknown_class(symbol: str) -> bool:
    """Return whether a symbol is the name of a class."""
    return _CLASS.fullmatch(symbol) is not None


def _shape(word: str) -> str:
    if not any(map(str.islower, word)):
        return "-CAPS" if any(map(str.isupper, word)) else ""
    return "-INITC" if word[0].isupper() else "-LC"


def _suffix(word: str, plain: bool) -> str:
    if len(word) >= 3 and word.endswith("s") and word[-2] not in "siu":
        return "-s"
    fitting = (suffix for suffix in _SUFFIXES if word.endswith(suffix)) if plain and len(word) >= 5 else iter(())
    return next((f"-{suffix}" for suffix in fitting), "")


def replace_rare_words(counts: Mapping[str, int], min_count: int) -> Counter[str]:
    """Replace counted words that are rarer than ``min_count`` by their classes."""
    replaced = Counter[str]()
    for word, count in counts.items():
        replaced[word if count >= min_count else unknown_class(word)] += count
    return replaced
