"""What formal languages must do. Each check raises ``BrokenContractError``."""

import math
from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Final

import numpy as np

from structattn.support.errors import BrokenContractError
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.registry import Language

_MAX_LENGTH: Final = 10
_MAX_STRINGS: Final = 4096  # that are enumerated


def check_valid_lengths(language: Language) -> None:
    """Lengths of strings ascend and have a probability of at most 1; others have none."""
    valid = language.valid_lengths(0, _MAX_LENGTH)
    if sorted(set(valid)) != list(valid) or not all(0 <= each <= _MAX_LENGTH for each in valid):
        raise BrokenContractError(f"the lengths from 0 to {_MAX_LENGTH} are {valid}; expected them to ascend")
    for length in range(_MAX_LENGTH + 1):
        alone, log_p = language.valid_lengths(length, length), language.log_length_probability(length)
        if list(alone) != [each for each in valid if each == length]:
            raise BrokenContractError(f"the lengths from {length} to {length} are {alone}, but from 0 on {valid}")
        if (length in valid) != (log_p > -math.inf) or log_p > 1e-9:
            raise BrokenContractError(f"length {length} has log-probability {log_p}; the possible lengths are {valid}")


def check_sampled_strings(language: Language) -> None:
    """Strings have the lengths asked for, symbols of the alphabet and probabilities; equal seeds, equal strings."""
    lengths = [*language.valid_lengths(0, _MAX_LENGTH)] * 4
    first, second = (language.sample_each(lengths, numpy_generator(1)) for _ in range(2))
    for length, string, again in zip(lengths, first, second, strict=True):
        if len(string) != length:
            raise BrokenContractError(f"a string of length {length} has length {len(string)}")
        if not np.array_equal(string, again):
            raise BrokenContractError(f"a string of length {length} differs from that of an equal generator")
        if any(not 0 <= symbol < len(language.alphabet) for symbol in np.asarray(string).tolist()):
            raise BrokenContractError(f"a string has a symbol beyond the alphabet: {np.asarray(string).tolist()}")
    log_p = language.log_probabilities(first)
    if not np.isfinite(log_p).all():
        string = first[int(np.flatnonzero(~np.isfinite(log_p))[0])]
        raise BrokenContractError(f"a sampled string has no probability: {np.asarray(string).tolist()}")


def check_string_probabilities(language: Language) -> None:
    """The probabilities of all strings of a length have the probability of the length as their sum."""
    symbols = range(len(language.alphabet))
    for length in range(_MAX_LENGTH + 1):
        if len(language.alphabet) ** length > _MAX_STRINGS:
            break
        strings = [np.array(each, dtype=np.int64) for each in product(symbols, repeat=length)]
        total = float(np.exp(language.log_probabilities(strings)).sum())
        expected = math.exp(language.log_length_probability(length))
        if not math.isclose(total, expected, rel_tol=1e-6, abs_tol=1e-12):
            raise BrokenContractError(f"strings of length {length} have probability {total:.6g}, not {expected:.6g}")


LANGUAGE_CHECKS: Final[Mapping[str, Callable[[Language], None]]] = MappingProxyType(
    {"lengths": check_valid_lengths, "strings": check_sampled_strings, "probabilities": check_string_probabilities}
)
