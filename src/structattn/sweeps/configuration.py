"""Differences between the configuration of a cell and that behind a published number."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain

from structattn.settings.published import PublishedTable, PublishedValue
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.trials import cell_settings


def configuration_differences(sweep: SweepSettings, table: PublishedTable, value: PublishedValue) -> tuple[str, ...]:
    """Return how the cell of a published number differs from the configuration behind the number.

    The published settings are applied to those of the cell; fields that change by that differ. Sampled fields are
    left out. Equal changes of several layers appear once.

    Returns:
        One text for each difference; empty if the configuration is the same as far as the recipe states it.

    Raises:
        SettingsError: the published settings are invalid.
    """
    ours = dict(_leaves(cell_settings(sweep, value.cell)))
    theirs = dict(_leaves(cell_settings(sweep, value.cell, {**table.settings, **value.settings})))
    changed = (
        f"{re.sub(r'[.][0-9]+', '', path)} is {_shown(ours.get(path))}, published {_shown(theirs.get(path))}"
        for path in dict.fromkeys(chain(ours, theirs))
        if ours.get(path) != theirs.get(path) and path not in sweep.random
    )
    return (*dict.fromkeys(changed), *table.differences, *value.differences)


def _leaves(tree: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the dotted path and the value of each field; lists of layers are entered, others are values."""
    if isinstance(tree, Mapping):
        items = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list) and any(isinstance(value, Mapping) for value in tree):
        items = [(str(index), value) for index, value in enumerate(tree)]
    else:
        yield path, tree
        return
    for key, value in items:
        yield from _leaves(value, f"{path}.{key}" if path else key)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
