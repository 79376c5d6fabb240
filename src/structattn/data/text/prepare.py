"""Text files to a prepared folder for language modeling.

The files are read twice: once to check every line and count the symbols, so that nothing is written from text that
will be refused further on, and once to write. Memory holds the vocabulary and one line.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from structattn.data.folders.header import Kind
from structattn.data.folders.writing import refuse_occupied, source_entry, write_prepared
from structattn.data.text.reading import Line, Notices, read_lines
from structattn.data.tokenization.tokenizers import LEVELS, TextError, Tokenizer, chosen_vocabulary, split_line
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary
from structattn.support.errors import DataError, UsageError
from structattn.support.files import sha256_of_file
from structattn.support.progress import progress
from structattn.support.special_tokens import UNK

MODES = ("sentences", "stream")

_ADVANCE_EVERY = 1000
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class _Rules:
    """How lines are cut, which are refused, which are kept."""

    level: str
    mode: str
    skip_empty: bool
    max_line_tokens: int

    def keep(self, symbols: list[str]) -> bool:
        return bool(symbols) or self.mode == "stream"


@dataclass(frozen=True)
class _Survey:
    """What the first reading of a file found."""

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
    """Check text files, number their symbols, and write a prepared folder, whole or not at all.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        train: the text from which the vocabulary is taken; one sequence a line. ``.gz`` is decompressed.
        valid: validation text.
        test: test text, where there is one.
        level: ``word`` (between spaces and tabs), ``character`` (code points) or ``byte`` (of UTF-8).
        mode: ``sentences``: each line is an example of its own; ``stream``: the lines follow one another.
        skip_empty: drop lines without symbols in sentence mode, where they are refused otherwise.
        max_line_tokens: longer lines are refused in sentence mode.
        min_count: symbols that occur less often in ``train`` become ``<unk>``.
        max_symbols: at most so many symbols get a number, the commonest; special symbols are not counted.

    Returns:
        What the user should know: marks and CRs that were dropped, lines that were skipped, an untrained ``<unk>``.

    Raises:
        DataError: a file is refused; the message gives file, line, byte column and reason. Nothing is left behind.
        UsageError: an option has an impossible value.
    """
    _check_options(level, mode, {"max_line_tokens": max_line_tokens, "min_count": min_count}, max_symbols)
    rules, notices, folder = _Rules(level, mode, skip_empty, max_line_tokens), Notices(), Path(folder)
    paths = {"train": Path(train), "valid": Path(valid), **({} if test is None else {"test": Path(test)})}
    refuse_occupied(folder)
    sources = [source_entry(path, split, folder) for split, path in paths.items()]
    with progress("Checking text", None, "lines") as advance:
        surveys = {split: _survey(path, rules, notices, advance) for split, path in paths.items()}
    vocabulary = _vocabulary(surveys, level, min_count, max_symbols)
    extra = _description(surveys, vocabulary, rules)
    _say_untrained_unknown(extra["unknown_tokens"], notices)
    with progress("Writing", sum(survey.lines for survey in surveys.values()), "lines") as advance:
        encode = partial(_encoded, rules=rules, tokenizer=Tokenizer(level, vocabulary), advance=advance)
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
        raise UsageError("min_count and max_symbols have no meaning for bytes: all 256 are always numbered")


def _cut_lines(path: Path, rules: _Rules, notices: Notices) -> Iterator[tuple[Line, list[str]]]:
    """Every line of a file with its symbols, none of them for a line that is to be skipped."""
    for line in read_lines(path, notices):
        with _place(path, line):
            symbols = split_line(rules.level, line.text)
            if rules.mode == "sentences":
                _check_sentence(line.text, symbols, rules)
        yield line, symbols


@contextmanager
def _place(path: Path, line: Line) -> Iterator[None]:
    """Add file, line and the column in the file to what is wrong with a line."""
    try:
        yield
    except TextError as error:
        raise DataError(path, error.reason, line.number, line.skipped_bytes + error.column) from None


def _check_sentence(text: str, symbols: list[str], rules: _Rules) -> None:
    if not symbols and not rules.skip_empty:
        raise TextError("an empty line; skip_empty drops such lines, and a stream keeps them", 1)
    if len(symbols) > rules.max_line_tokens:
        column = LEVELS[rules.level].byte_offset(text, rules.max_line_tokens) + 1
        most = f"max_line_tokens allows {rules.max_line_tokens} in sentence mode"
        raise TextError(f"{len(symbols)} tokens in one line, where {most}; a stream has no such limit", column)


def _survey(path: Path, rules: _Rules, notices: Notices, advance: Callable[..., None]) -> _Survey:
    counts: Counter[str] = Counter()
    kept = skipped = 0
    for _, symbols in _advancing(_cut_lines(path, rules, notices), advance):
        if rules.keep(symbols):
            counts.update(symbols)
            kept += 1
        else:
            skipped += 1
    if kept == 0:
        raise DataError(path, "holds no lines" if skipped == 0 else f"all of its {skipped} lines are empty")
    if skipped:
        notices.say(f"{path}: {skipped} empty lines are skipped")
    return _Survey(counts, kept + skipped, skipped)


def _vocabulary(surveys: Mapping[str, _Survey], level: str, min_count: int, max_symbols: int | None) -> Vocabulary:
    held_out = (symbol for split, survey in surveys.items() if split != "train" for symbol in survey.counts)
    counts = surveys["train"].counts
    return chosen_vocabulary(level, counts, min_count=min_count, max_symbols=max_symbols, held_out=held_out)


def _description(surveys: Mapping[str, _Survey], vocabulary: Vocabulary, rules: _Rules) -> dict[str, Any]:
    def unknown(counts: Counter[str]) -> int:
        return sum(count for symbol, count in counts.items() if vocabulary.id_of.get(symbol, UNK) == UNK)

    return {
        "skip_empty": rules.skip_empty,
        "max_line_tokens": rules.max_line_tokens if rules.mode == "sentences" else None,
        "skipped_lines": {split: survey.skipped for split, survey in surveys.items()},
        "unknown_tokens": {
            split: unknown(survey.counts) if vocabulary.has_unknown else 0 for split, survey in surveys.items()
        },
    }


def _say_untrained_unknown(unknown: Mapping[str, int], notices: Notices) -> None:
    others = {split: count for split, count in unknown.items() if split != "train" and count}
    if others and not unknown["train"]:
        found = " and ".join(f"{count} tokens of {split}" for split, count in others.items())
        advice = "so no model can learn it; min_count=2 would turn the rarest symbols of train into it"
        notices.say(f"{found} are {UNKNOWN_SYMBOL}, which train does not hold, {advice}")


def _encoded(
    path: Path, sha256: str, *, rules: _Rules, tokenizer: Tokenizer, advance: Callable[..., None]
) -> Iterator[list[int]]:
    """The second reading: the ids of each line that is kept."""
    silent = Notices(log=False)  # the first reading has said everything
    for line, symbols in _advancing(_cut_lines(path, rules, silent), advance):
        if rules.keep(symbols):
            with _place(path, line):
                ids = tokenizer.encode_symbols(symbols, line.text)
            yield ids
    if sha256_of_file(path) != sha256:
        raise DataError(path, "changed while it was being prepared")


def _advancing(items: Iterable[_Item], advance: Callable[..., None]) -> Iterator[_Item]:
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % _ADVANCE_EVERY == 0:
            advance(_ADVANCE_EVERY)
    advance(count % _ADVANCE_EVERY)
