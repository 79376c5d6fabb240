"""Strings by leftmost derivation, and languages from texts."""

from pathlib import Path

import numpy as np
import pytest

from structattn.tasks.formal_languages.language_files.language_file import parse_language_file


def derived(rules, max_length):
    """{string: probability} of all strings up to a length: every leftmost derivation of {left: {right: weight}}."""
    least = dict.fromkeys(rules, 1000)
    for _ in rules:
        for left, rights in rules.items():
            least[left] = min(sum(least.get(symbol, 1) for symbol in right.split()) for right in rights)
    found, pending = {}, [((next(iter(rules)),), 1)]
    while pending:
        form, probability = pending.pop()
        if sum(least.get(symbol, 1) for symbol in form) > max_length:
            continue
        place = next((index for index, symbol in enumerate(form) if symbol in rules), None)
        if place is None:
            found[form] = found.get(form, 0) + probability
            continue
        for right, weight in rules[form[place]].items():
            pending.append(((*form[:place], *right.split(), *form[place + 1 :]), probability * weight))
    return found


@pytest.fixture(scope="session")
def strings_of():
    """(rules, max_length) -> {string: probability}."""
    return derived


@pytest.fixture(scope="session")
def language_of():
    """(name of a file, text) -> its language."""
    return lambda name, text: parse_language_file(name, text, Path(name)).language


@pytest.fixture(scope="session")
def ids_of():
    """(language, symbols) -> the string as ids."""
    return lambda language, symbols: np.array([language.alphabet.index(symbol) for symbol in symbols], dtype=np.int64)
