"""The rows of a table of BLiMP's results: runs beside published systems."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from structattn.tasks.minimal_pairs.published import FIELDS, PHENOMENA, PUBLISHED

Accuracy = Mapping[str, Any]  # a MinimalPairAccuracy as a mapping


class Row(NamedTuple):
    """Accuracy on a group of pairs.

    Args:
        name: of the group.
        runs: accuracy of each run; None where it was not scored on such pairs.
        published: system -> accuracy in percent.
    """

    name: str
    runs: tuple[Accuracy | None, ...]
    published: Mapping[str, float]


def summary_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return all pairs, then each field and each phenomenon, those of BLiMP first.

    Args:
        results: ``BlimpScores`` of each run as a mapping.
    """
    rows = [Row("all", tuple(each["overall"] for each in results), {s: of.overall for s, of in PUBLISHED.items()})]
    for group, known in (("fields", FIELDS), ("phenomena", PHENOMENA)):
        names = dict.fromkeys((*known, *(name for each in results for name in each[group])))
        for name in names:
            found = tuple(each[group].get(name) for each in results)
            published = {s: getattr(of, group)[name] for s, of in PUBLISHED.items() if name in getattr(of, group)}
            if any(found):
                rows.append(Row(name, found, published))
    return rows


def paradigm_rows(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Row]]:
    """Return the paradigms of each phenomenon: phenomenon -> rows, both in alphabetical order."""
    phenomena = {paradigm: name for each in results for paradigm, name in each["phenomenon_of"].items()}
    rows: dict[str, list[Row]] = {name: [] for name in sorted(set(phenomena.values()))}
    for paradigm in sorted(phenomena):
        found = tuple(each["paradigms"].get(paradigm) for each in results)
        rows[phenomena[paradigm]].append(Row(paradigm, found, {}))
    return rows


def known_share(accuracy: Accuracy) -> float:
    """Return the share of the pairs without ``<unk>``."""
    known = accuracy["known"]
    return known["trials"] / accuracy["sentence"]["trials"] if known else 0.0
