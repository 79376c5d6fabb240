"""What all transductions and formal languages must do, and that the checks find what does not."""

from dataclasses import replace

import numpy as np
import pytest

from structattn.support.errors import BrokenContractError
from structattn.tasks.formal_languages.contract import LANGUAGE_CHECKS
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.tasks.transductions.contract import TRANSDUCTION_CHECKS
from structattn.tasks.transductions.registry import TRANSDUCTIONS, transduction

LANGUAGES = [name for name in FORMAL_LANGUAGES if name not in FORMAL_LANGUAGES.plugins]
TASKS = [name for name in TRANSDUCTIONS if name not in TRANSDUCTIONS.plugins]


@pytest.mark.parametrize("check", LANGUAGE_CHECKS)
@pytest.mark.parametrize("name", LANGUAGES)
def test_formal_languages(name, check):
    LANGUAGE_CHECKS[check](formal_language(name))


@pytest.mark.parametrize("check", TRANSDUCTION_CHECKS)
@pytest.mark.parametrize("name", [*TASKS, "recognise:marked-copy:1", "complete:marked-reversal"])
def test_transductions(name, check):
    TRANSDUCTION_CHECKS[check](transduction(name))


PARITY = transduction("parity-check")


def noisy(length, count, generator):
    x, y = PARITY.draw(length, count, generator)
    return x, y ^ (np.random.default_rng().random(y.shape) < 0.5)


def ambiguous(length, count, generator):
    x, y = PARITY.draw(length, count, generator)
    return x, y ^ generator.integers(0, 2, size=y.shape)


@pytest.mark.parametrize(
    ("check", "changes", "message"),
    [
        ("pairs", {"draw": lambda length, count, generator: (np.full((count, length), 2),) * 2},
         "integers from 2 to 2"),
        ("pairs", {"draw": lambda length, count, generator: (np.zeros((count, length), int),
                   np.zeros((count, 1 + generator.integers(5)), int))}, "y has length .*, and in another draw"),
        ("seeds", {"draw": noisy}, "y of length 1 differs from that of an equal generator"),
        ("answers", {"draw": ambiguous}, "has two outputs"),
        ("counted", {"counted": lambda y: y}, "counted has dtype int64 and shape .64, 1.; expected bool"),
        ("pairs", {"min_length": 11}, "no x has a length from 1 to 10"),
    ],
)  # fmt: skip
def test_broken_transductions_are_found(check, changes, message):
    with pytest.raises(BrokenContractError, match=message):
        TRANSDUCTION_CHECKS[check](replace(PARITY, name="own", **changes))


class Wrong:
    """A language of which one method is replaced."""

    name, variant = "wrong", "faithful"

    def __init__(self, **methods):
        self.language, self.methods = formal_language("dyck"), methods
        self.alphabet = self.language.alphabet

    def __getattr__(self, name):
        return self.methods.get(name) or getattr(self.language, name)


@pytest.mark.parametrize(
    ("check", "methods", "message"),
    [
        ("lengths", {"valid_lengths": lambda low, high: list(range(high, low - 1, -1))}, "expected them to ascend"),
        ("lengths", {"valid_lengths": lambda low, high: list(range(low, high + 1))},
         "length 0 has log-probability -inf"),
        ("lengths", {"log_length_probability": lambda length: 0.5 if length and length % 2 == 0 else -np.inf},
         "length 2 has log-probability 0.5"),
        ("strings", {"sample_each": lambda lengths, generator: [np.zeros(3, int)] * len(lengths)}, "has length 3"),
        ("strings", {"sample_each": lambda lengths, generator: [np.zeros(n, int) for n in lengths]},
         "no probability"),
        ("strings", {"sample_each": lambda lengths, generator: [np.full(n, 9) for n in lengths]},
         "beyond the alphabet"),
        ("probabilities", {"log_probabilities": lambda strings: np.full(len(strings), -1.0)},
         "strings of length 0 have"),
    ],
)  # fmt: skip
def test_broken_languages_are_found(check, methods, message):
    with pytest.raises(BrokenContractError, match=message):
        LANGUAGE_CHECKS[check](Wrong(**methods))
