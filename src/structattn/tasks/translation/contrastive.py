"""Contrastive pairs of translations: their files, LingEval97, and the accuracy of a model on them."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.support.environment import name_of
from structattn.support.errors import DataError, quoted
from structattn.support.grouping import grouped
from structattn.support.progress import progress
from structattn.support.shapes import Bool, Float
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.suite_analyses import write_suite_analysis
from structattn.tasks.translation.translators import make_pair_scorer
from structattn.text.reading import Line, Notices, read_lines


@dataclass(frozen=True)
class Contrast:
    """A source with a correct and an incorrect translation, of which a model should prefer the correct one.

    ``kind`` is that of the error, ``distance`` the number of words between the two that must agree, if it is stated;
    ``paths`` are the files of source, reference and contrastive translation, all three of which stand in ``line``.
    """

    source: str
    reference: str
    contrastive: str
    kind: str
    distance: int | None
    paths: tuple[Path, Path, Path]
    line: int


_BLANK = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair: JSON can have it, and no file in UTF-8
_DECODER = json.JSONDecoder()


def read_lingeval97(path: Path, notices: Notices) -> list[Contrast]:
    """Read one pair for each error of each entry, in file order.

    Cost: memory of the whole file.

    Raises:
        DataError: the file is not a list of such entries.
    """
    text = "\n".join(line.text for line in read_lines(path, notices))
    contrasts = [contrast for line, entry in _entries(path, text) for contrast in _parse_entry(path, line, entry)]
    if not contrasts:
        raise DataError(path, "holds no contrastive translations")
    return contrasts


def _entries(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the members of a list with the lines at which they begin; ``json.loads`` would not give the lines."""
    position = _skip_blanks(text, 0)
    _expect(path, text, position, "[")
    position, line, counted = _skip_blanks(text, position + 1), 1, 0
    more = not text.startswith("]", position)
    while more:
        line, counted = line + text.count("\n", counted, position), position
        try:
            entry, position = _DECODER.raw_decode(text, position)
        except ValueError as error:  # an error about a number with too many digits has no position
            reason = f"not JSON: {getattr(error, 'msg', error)}"
            raise _error_at(path, text, getattr(error, "pos", position), reason) from None
        except RecursionError:
            raise DataError(path, "nested too deeply", line) from None
        yield line, entry
        position = _skip_blanks(text, position)
        if more := not text.startswith("]", position):
            _expect(path, text, position, ",")
            position = _skip_blanks(text, position + 1)
    end = _skip_blanks(text, position + 1)
    if end < len(text):
        raise _error_at(path, text, end, "unexpected text after the list")


def _skip_blanks(text: str, position: int) -> int:
    blanks = _BLANK.match(text, position)
    return position if blanks is None else blanks.end()


def _expect(path: Path, text: str, position: int, what: str) -> None:
    if not text.startswith(what, position):
        found = repr(text[position]) if position < len(text) else "the end"
        raise _error_at(path, text, position, f"not a JSON list of entries: expected {what!r}, found {found}")


def _error_at(path: Path, text: str, position: int, reason: str) -> DataError:
    start = text.rfind("\n", 0, position) + 1
    return DataError(path, reason, text.count("\n", 0, position) + 1, len(text[start:position].encode()) + 1)


def _parse_entry(path: Path, line: int, entry: Any) -> Iterator[Contrast]:
    source, reference = (_get_text(path, line, entry, field) for field in ("source", "reference"))
    errors = entry.get("errors")
    if not isinstance(errors, list):
        raise DataError(path, f"errors is {quoted(errors)}; expected a list", line)
    for error in errors:
        kind, contrastive = (_get_text(path, line, error, field) for field in ("type", "contrastive"))
        distance = _check_distance(path, line, error.get("distance"))
        yield Contrast(source, reference, contrastive, kind, distance, (path, path, path), line)


def _check_distance(path: Path, line: int, distance: Any) -> int | None:
    """Check a distance, which LingEval97's own scorer also accepts as a string of digits."""
    if isinstance(distance, str) and re.fullmatch("[0-9]{1,18}", distance):
        return int(distance)
    if distance is not None and (type(distance) is not int or distance < 0):
        raise DataError(path, f"distance is {quoted(distance)}; expected a whole number", line)
    return distance


def _get_text(path: Path, line: int, tree: Any, field: str) -> str:
    if not isinstance(tree, dict):
        raise DataError(path, f"found {quoted(tree)}; expected a JSON object", line)
    text = tree.get(field)
    if not isinstance(text, str) or not text.strip() or _SURROGATE.search(text):
        raise DataError(path, f"{field} is {quoted(text)}; expected text", line)
    return text


NAMES = ("src", "tgt.correct", "tgt.incorrect")


def read_contrasts(path: Path, notices: Notices) -> list[Contrast]:
    """Read contrastive pairs.

    Args:
        path: a JSON file in LingEval97's format; or a folder of aligned files ``src.*``, ``tgt.correct.*`` and
            ``tgt.incorrect.*``; or a folder of such folders. ``.gz`` is decompressed.
        notices: collects notices of reading.

    Raises:
        DataError: something is missing or malformed; the message gives file, line and reason.
    """
    if not path.is_dir():
        return read_lingeval97(path, notices)
    return [contrast for folder in _folders(path) for contrast in _read_aligned(folder, notices)]


def _folders(path: Path) -> list[Path]:
    """Return the folders of aligned files: a folder, or those in it."""
    folders = [path] if _is_aligned(path) else sorted(filter(_is_aligned, path.iterdir()))
    if not folders:
        raise DataError(path, "has no files src.*, tgt.correct.* and tgt.incorrect.*, nor folders with such files")
    return folders


def _is_aligned(folder: Path) -> bool:
    """Return whether a path is a folder with at least one of the aligned files."""
    return folder.is_dir() and any(any(folder.glob(f"{name}.*")) for name in NAMES)


def _read_aligned(folder: Path, notices: Notices) -> Iterator[Contrast]:
    paths = _find_file(folder, NAMES[0]), _find_file(folder, NAMES[1]), _find_file(folder, NAMES[2])
    for rows in zip_longest(*(read_lines(path, notices) for path in paths)):
        source, reference, contrastive = _texts(paths, rows)
        line = next(row.number for row in rows if row is not None)
        yield Contrast(source, reference, contrastive, name_of(folder), None, paths, line)


def _find_file(folder: Path, name: str) -> Path:
    paths = sorted(folder.glob(f"{name}.*"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "none"
        raise DataError(folder, f"expected one file {name}.*, found {names}")
    return paths[0]


def _texts(paths: tuple[Path, ...], rows: tuple[Line | None, ...]) -> list[str]:
    lines = [(path, row) for path, row in zip(paths, rows, strict=True) if row is not None]
    if len(lines) < len(rows):
        short = next(path for path, row in zip(paths, rows, strict=True) if row is None)
        path, row = lines[0]
        raise DataError(path, f"has no counterpart: {short} ends after {row.number - 1} lines", row.number)
    for path, row in lines:
        if not row.text.strip():
            raise DataError(path, "a blank line; expected a sentence", row.number)
    return [row.text for _, row in lines]


BATCH_TOKENS = 4096
MAX_DISTANCE = 15  # words; larger distances are counted together, as by LingEval97's own tool


@dataclass(frozen=True)
class ContrastiveScores:
    """Accuracy: how often the reference was strictly more likely; a tie counts as wrong.

    Args:
        types: type of error -> accuracy, in order of first occurrence.
        distances: type of error -> distance in words (``0`` to ``15``, ``>15``) -> accuracy, for types with distances.
        per_token: whether log-probabilities per token were compared instead of those of the whole translation.
    """

    types: dict[str, Proportion]
    distances: dict[str, dict[str, Proportion]]
    per_token: bool


def contrastive_negative_log_likelihoods(
    run: LoadedRun, contrasts: Sequence[Contrast], *, per_token: bool = False, batch_tokens: int = BATCH_TOKENS
) -> Float[np.ndarray, "pairs 2"]:
    """Return -log p(translation | source) of the reference and of the contrastive translation, ``<eos>`` included.

    Per token, they are divided by the number of tokens, ``<eos>`` included, characters of spelled words excluded.

    Cost: each distinct encoded pair is scored once, so translations with equal token ids tie exactly; memory for
    batch_tokens * classes numbers.

    Raises:
        UsageError: the run is not a translation run.
        DataError: a line cannot be encoded or is too long for the model; the message names the line.
    """
    scorer = replace(make_pair_scorer([run]), batch_tokens=batch_tokens)
    encoded = [
        scorer.encode(each.source, text, (each.paths[0], path), each.line)
        for each in contrasts
        for text, path in zip((each.reference, each.contrastive), each.paths[1:], strict=True)
    ]
    distinct = list(dict.fromkeys(encoded))
    with progress("Scoring translations", len(distinct), "translations") as advance:
        scores = scorer(distinct, advance)
    values = [-each.log_probability / (each.num_tokens if per_token else 1) for each in scores]
    losses = dict(zip(distinct, values, strict=True))
    return np.array([losses[each] for each in encoded], np.float64).reshape(-1, 2)


def contrastive_scores(
    contrasts: Sequence[Contrast], losses: Float[np.ndarray, "pairs 2"], *, per_token: bool = False
) -> ContrastiveScores:
    """Return how often the reference is more likely, by type of error and by distance, given -log p of both."""
    right = losses[:, 0] < losses[:, 1]
    types = _accuracies([each.kind for each in contrasts], right)
    distances = {}
    for kind in types:
        known = [n for n, each in enumerate(contrasts) if each.kind == kind and each.distance is not None]
        known.sort(key=lambda n: contrasts[n].distance or 0)
        if known:
            distances[kind] = _accuracies([_distance(contrasts[n]) for n in known], right[known])
    return ContrastiveScores(types, distances, per_token)


def write_contrastive(run: LoadedRun, path: Path, scores: ContrastiveScores) -> Path:
    """Write the scores to ``analyses/contrastive-NAME.json`` in the run folder; NAME is that of the file or folder."""
    name = name_of(path).split(".json")[0]
    files = [_find_file(each, part) for each in _folders(path) for part in NAMES] if path.is_dir() else [path]
    return write_suite_analysis(run, f"contrastive-{name}", "contrastive", {"name": name, **asdict(scores)}, files)


def _distance(contrast: Contrast) -> str:
    distance = contrast.distance or 0
    return str(distance) if distance <= MAX_DISTANCE else f">{MAX_DISTANCE}"


def _accuracies(names: Sequence[str], right: Bool[np.ndarray, " pairs"]) -> dict[str, Proportion]:
    """Return the accuracy for each name, in order of first occurrence."""
    groups = grouped(zip(names, right.tolist(), strict=True), lambda pair: pair[0])
    return {name: wilson_interval([outcome for _, outcome in pairs]) for name, pairs in groups.items()}
