"""Chunks of lines, as worker processes split, check and encode them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.reading import TextChunk
from structattn.text.tokenization.encoding import EncodedLines
from structattn.text.tokenization.pretrained_tokenizer import PretrainedTokenizer
from structattn.text.tokenization.splitting import SplitText, TextSize, split_text, text_size
from structattn.text.tokenization.tokenizers import LEVELS, TextError, locate_errors, refuse_control_symbols
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS


class LineCounts(NamedTuple):
    """What was counted in some lines: symbols, lines, those skipped because they are empty, and the others' size."""

    symbols: Sequence[str]
    counts: NDArray[np.integer]
    lines: int
    skipped: int
    size: TextSize


def split_chunk(settings: TextSettings, chunk: TextChunk) -> SplitText | None:
    """Split lines into the settings' unit; None if a line is refused, see ``refuse_line``."""
    split = split_text(settings.unit, _normalize(settings, chunk.text))
    if settings.level == "word" and not _CONTROLS.isdisjoint(split.symbols):
        return None
    if settings.mode == "stream":
        return split
    too_short = not settings.skip_empty and bool((split.lengths == 0).any())
    return None if too_short or bool((split.lengths > settings.max_line_tokens).any()) else split


def count_chunk(settings: TextSettings, chunk: TextChunk) -> LineCounts | None:
    """Split lines as ``split_chunk`` and count their symbols."""
    split = split_chunk(settings, chunk)
    if split is None:
        return None
    is_skipped = split.lengths == 0
    skipped = int(is_skipped.sum()) if settings.mode == "sentences" else 0
    text = chunk.text
    if skipped:
        text = "".join(line.text + "\n" for line, skip in zip(chunk.lines(), is_skipped, strict=True) if not skip)
    return LineCounts(split.symbols, split.counts(), len(split.lengths), skipped, text_size(text))


def refuse_line(settings: TextSettings, path: Path, chunk: TextChunk) -> NoReturn:
    """Raise the error of the first line for which ``split_chunk`` returns None.

    Raises:
        DataError: with file, line and byte column; if lines are normalized, the column is that of the line's start.
    """
    level = LEVELS[settings.unit]
    for line in chunk.lines():
        with locate_errors(path, line.number, line.skipped_bytes, exact=settings.normalization is None):
            text = _normalize(settings, line.text + "\n")[:-1]
            symbols = level.split(text)
            if settings.level == "word":
                refuse_control_symbols(text, symbols)
            if settings.mode == "sentences":
                _check_sentence(settings, text, symbols)
    raise AssertionError(f"{path}: no line from {chunk.first_line} on is refused")


def encode_chunk(settings: TextSettings, tokenizer: PretrainedTokenizer, path: Path, chunk: TextChunk) -> EncodedLines:
    """Encode lines by a pretrained tokenizer; lines without words have no tokens in sentence mode.

    Raises:
        DataError: a line contains the name of a special token.
    """
    lines = [_normalize_line(settings, line.text) for line in chunk.lines()]
    if settings.mode == "sentences":
        lines = [line if line.strip(" \t") else "" for line in lines]
    encoded = tokenizer.encode_lines(lines)
    if encoded is not None:
        return encoded
    for line, text in zip(chunk.lines(), lines, strict=True):
        with locate_errors(path, line.number, line.skipped_bytes, exact=settings.normalization is None):
            tokenizer.encode(text)
    raise AssertionError(f"{path}: no line from {chunk.first_line} on is refused")


def _normalize_line(settings: TextSettings, line: str) -> str:
    return line if settings.normalization is None else settings.normalization(line)


_CONTROLS = frozenset(CONTROL_SYMBOLS)


def _normalize(settings: TextSettings, text: str) -> str:
    normalization = settings.normalization
    if normalization is None:
        return text
    if settings.unit == "word":
        return normalization.characters(text)  # splitting removes the spaces
    return "".join(normalization(line) + "\n" for line in text.split("\n")[:-1])


def _check_sentence(settings: TextSettings, text: str, symbols: list[str]) -> None:
    if not symbols and not settings.skip_empty:
        flags = "(--skip-empty, --mode stream)"
        raise TextError(f"an empty line; skip_empty drops such lines, and mode stream keeps them {flags}", 1)
    if len(symbols) > settings.max_line_tokens:
        column = LEVELS[settings.unit].byte_offset(text, settings.max_line_tokens) + 1
        raise TextError(too_long(len(symbols), settings.max_line_tokens), column)


def too_long(num_tokens: int, limit: int) -> str:
    """Return the reason why a line of that many tokens is refused."""
    expected = f"max_line_tokens is {limit} in sentence mode; mode stream (--mode stream) has no limit"
    return f"the line has {num_tokens} tokens, but {expected}"


LINES_IN_BATCH: Final = 1000


def cut_into_blocks(lines: Iterable[EncodedLines], length: int) -> Iterator[EncodedLines]:
    """Cut the end off every 1,000 lines so that the rest of them makes whole blocks of a stream.

    As in the published preprocessing of Li et al. (2024), lines are concatenated within batches of 1,000 and the
    remainder of each batch is dropped. Here every line ends in ``<eos>``, which counts; where a line is cut, ``<eos>``
    takes the place of its last token that would still fit. So windows of this length of the stream are the blocks.
    """
    for batch in _batches(lines):
        ends = np.cumsum(batch.lengths + 1)
        total = int(ends[-1])
        kept = total - total % length
        whole = int(np.searchsorted(ends, kept, "right"))
        rest = kept - (int(ends[whole - 1]) if whole else 0)  # of the line that is cut
        lengths = np.append(batch.lengths[:whole], [rest - 1] if rest else [])
        yield EncodedLines(batch.tokens[: kept - len(lengths)], lengths.astype(np.int64))


def _batches(lines: Iterable[EncodedLines]) -> Iterator[EncodedLines]:
    """Yield the same lines, 1,000 at once."""
    rest = EncodedLines(np.zeros(0, np.int32), np.zeros(0, np.int64))
    for some in lines:
        rest = EncodedLines(*map(np.concatenate, zip(rest, some, strict=True)))
        while len(rest.lengths) >= LINES_IN_BATCH:
            batch, rest = _split(rest, LINES_IN_BATCH)
            yield batch
    if len(rest.lengths):
        yield rest


def _split(lines: EncodedLines, count: int) -> tuple[EncodedLines, EncodedLines]:
    num_tokens = int(lines.lengths[:count].sum())
    return (
        EncodedLines(lines.tokens[:num_tokens], lines.lengths[:count]),
        EncodedLines(lines.tokens[num_tokens:], lines.lengths[count:]),
    )
