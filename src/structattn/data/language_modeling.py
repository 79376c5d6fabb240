"""Preparation of text for language modeling.

The files are read twice: first to check every line and count symbols, so that nothing is written from text that is
refused later, then to write. Memory holds the vocabulary and one line.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from structattn.data.folders.header import Kind
from structattn.data.folders.writing import require_empty_folder, source_entry, write_prepared
from structattn.data.text.reading import Line, Notices, read_lines
from structattn.data.tokenization.tokenizers import (
    LEVELS,
    SymbolTokenizer,
    TextError,
    choose_vocabulary,
    locate_errors,
    split_line,
)
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary
from structattn.support.errors import DataError, UsageError
from structattn.support.files import sha256_of_file
from structattn.support.progress import progress, track
from structattn.support.special_tokens import UNK

MODES = ("sentences", "stream")


@dataclass(frozen=True)
class _Rules:
    """How lines are split, and which are refused or kept."""

    level: str
    mode: str
    skip_empty: bool
    max_line_tokens: int

    def keep(self, symbols: list[str]) -> bool:
        return bool(symbols) or self.mode == "stream"


@dataclass(frozen=True)
class _Survey:
    """The result of the first pass over a file."""

    counts: Counter[str]
    lines: int
    skipped: int


def prepare_language_modeling(
    folder: Path,
    train: Path,
    valid: Path,
    test: Path | None = None,
    *,
    level: str = "word",
    mode: str = "sentences",
    skip_empty: bool = False,
    max_line_tokens: int = 100_000,
    min_count: int = 1,
    max_symbols: int | None = None,
) -> tuple[str, ...]:
    """Check text files, choose a vocabulary, encode them, and write a prepared folder atomically.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        train: the text from which the vocabulary is taken, one sequence per line. ``.gz`` is decompressed.
        valid: validation text.
        test: test text, if any.
        level: ``word`` (separated by spaces and tabs), ``character`` (code points) or ``byte`` (of UTF-8).
        mode: ``sentences``: each line is a separate example; ``stream``: the lines are concatenated.
        skip_empty: drop lines without symbols in sentence mode; otherwise they are refused.
        max_line_tokens: longer lines are refused in sentence mode.
        min_count: symbols that are rarer in ``train`` become ``<unk>``.
        max_symbols: the maximum vocabulary size, not counting special symbols; the most frequent symbols are kept.

    Returns:
        Notices to the user: dropped byte-order marks and CRs, skipped lines, an ``<unk>`` that does not occur in train.

    Raises:
        DataError: a file is refused, with file, line, byte column and reason. Nothing is left on disk.
        UsageError: an option is invalid.
    """
    _check_options(level, mode, {"max_line_tokens": max_line_tokens, "min_count": min_count}, max_symbols)
    rules, notices, folder = _Rules(level, mode, skip_empty, max_line_tokens), Notices(), Path(folder)
    paths = {"train": Path(train), "valid": Path(valid), **({} if test is None else {"test": Path(test)})}
    require_empty_folder(folder)
    sources = [source_entry(path, split, folder) for split, path in paths.items()]
    with progress("Checking text", None, "lines") as advance:
        surveys = {split: _survey(path, rules, notices, advance) for split, path in paths.items()}
    vocabulary = _vocabulary(surveys, level, min_count, max_symbols)
    extra = _description(surveys, vocabulary, rules)
    _report_untrained_unknown(extra["unknown_tokens"], notices)
    with progress("Writing", sum(survey.lines for survey in surveys.values()), "lines") as advance:
        encode = partial(_encode, rules=rules, tokenizer=SymbolTokenizer(level, vocabulary), advance=advance)
        write_prepared(
            folder,
            kind=cast("Kind", mode),
            vocabulary=vocabulary,
            tokenizer={"level": level, "min_count": min_count, "max_symbols": max_symbols},
            sources=sources,
            splits={source["split"]: encode(paths[source["split"]], source["sha256"]) for source in sources},
            extra=extra,
        )
    return notices.messages


def _check_options(level: str, mode: str, at_least_one: dict[str, int], max_symbols: int | None) -> None:
    if level not in LEVELS:
        raise UsageError(f"level {level!r} is not one of {sorted(LEVELS)}")
    if mode not in MODES:
        raise UsageError(f"mode {mode!r} is not one of {list(MODES)}")
    for name, value in {**at_least_one, **({} if max_symbols is None else {"max_symbols": max_symbols})}.items():
        if value < 1:
            raise UsageError(f"{name} is {value}; expected at least 1")
    if level == "byte" and (at_least_one["min_count"] > 1 or max_symbols is not None):
        raise UsageError("min_count and max_symbols do not apply to bytes: the vocabulary always has all 256")


def _split_lines(path: Path, rules: _Rules, notices: Notices) -> Iterator[tuple[Line, list[str]]]:
    """Yield every line of a file with its symbols; none for a line that is skipped."""
    for line in read_lines(path, notices):
        with locate_errors(path, line.number, line.skipped_bytes):
            symbols = split_line(rules.level, line.text)
            if rules.mode == "sentences":
                _check_sentence(line.text, symbols, rules)
        yield line, symbols


def _check_sentence(text: str, symbols: list[str], rules: _Rules) -> None:
    if not symbols and not rules.skip_empty:
        raise TextError("an empty line; skip_empty drops such lines, and mode stream keeps them", 1)
    if len(symbols) > rules.max_line_tokens:
        column = LEVELS[rules.level].byte_offset(text, rules.max_line_tokens) + 1
        limit = f"max_line_tokens is {rules.max_line_tokens} in sentence mode; mode stream has no limit"
        raise TextError(f"the line has {len(symbols)} tokens, but {limit}", column)


def _survey(path: Path, rules: _Rules, notices: Notices, advance: Callable[..., None]) -> _Survey:
    counts: Counter[str] = Counter()
    kept = skipped = 0
    for _, symbols in track(_split_lines(path, rules, notices), advance):
        if rules.keep(symbols):
            counts.update(symbols)
            kept += 1
        else:
            skipped += 1
    if kept == 0:
        raise DataError(path, "holds no lines" if skipped == 0 else f"all of its {skipped} lines are empty")
    if skipped:
        notices.add(f"{path}: {skipped} empty lines are skipped")
    return _Survey(counts, kept + skipped, skipped)


def _vocabulary(surveys: Mapping[str, _Survey], level: str, min_count: int, max_symbols: int | None) -> Vocabulary:
    held_out = (symbol for split, survey in surveys.items() if split != "train" for symbol in survey.counts)
    counts = surveys["train"].counts
    return choose_vocabulary(level, counts, min_count=min_count, max_symbols=max_symbols, held_out=held_out)


def _description(surveys: Mapping[str, _Survey], vocabulary: Vocabulary, rules: _Rules) -> dict[str, Any]:
    def num_unknown(counts: Counter[str]) -> int:
        return sum(count for symbol, count in counts.items() if vocabulary.id_of.get(symbol, UNK) == UNK)

    return {
        "skip_empty": rules.skip_empty,
        "max_line_tokens": rules.max_line_tokens if rules.mode == "sentences" else None,
        "skipped_lines": {split: survey.skipped for split, survey in surveys.items()},
        "unknown_tokens": {
            split: num_unknown(survey.counts) if vocabulary.has_unknown else 0 for split, survey in surveys.items()
        },
    }


def _report_untrained_unknown(unknown: Mapping[str, int], notices: Notices) -> None:
    others = {split: count for split, count in unknown.items() if split != "train" and count}
    if others and not unknown["train"]:
        found = " and ".join(f"{count} tokens of {split}" for split, count in others.items())
        advice = f"min_count=2 would make the rarest symbols of train {UNKNOWN_SYMBOL}"
        notices.add(f"{found} are {UNKNOWN_SYMBOL}, which does not occur in train, so no model can learn it; {advice}")


def _encode(
    path: Path, sha256: str, *, rules: _Rules, tokenizer: SymbolTokenizer, advance: Callable[..., None]
) -> Iterator[list[int]]:
    """Read a file again and yield the ids of each line that is kept."""
    silent = Notices(log=False)  # the first pass has collected all notices
    for line, symbols in track(_split_lines(path, rules, silent), advance):
        if rules.keep(symbols):
            with locate_errors(path, line.number, line.skipped_bytes):
                ids = tokenizer.encode_symbols(symbols, line.text)
            yield ids
    if sha256_of_file(path) != sha256:
        raise DataError(path, "changed while it was being prepared")
