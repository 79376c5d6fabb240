"""Lines of a text: the files that they are read from, and the chunks that worker processes check and encode."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.reading import Line, Notices, Portion, TextChunk, read_chunks, split_portions
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
        DataError: a line contains the name of a special token, or one in sentence mode has words and no token.
    """
    lines = [_normalize_line(settings, line.text) for line in chunk.lines()]
    if settings.mode == "sentences":
        lines = [line if line.strip(" \t") else "" for line in lines]
    encoded = tokenizer.encode_lines(lines)
    if encoded is not None:
        if settings.mode == "sentences":
            _refuse_lost(encoded, lines, path, chunk)
        return encoded
    for line, text in zip(chunk.lines(), lines, strict=True):
        with locate_errors(path, line.number, line.skipped_bytes, exact=settings.normalization is None):
            tokenizer.encode(text)
    raise AssertionError(f"{path}: no line from {chunk.first_line} on is refused")


def _refuse_lost(encoded: EncodedLines, lines: Sequence[str], path: Path, chunk: TextChunk) -> None:
    """Refuse a line whose symbols, such as a space without width, the tokenizer leaves out."""
    for line, text, length in zip(chunk.lines(), lines, encoded.lengths, strict=True):
        if text and not length:
            raise DataError(
                path, "the tokenizer leaves nothing of this line; expected at least one token", line.number, 1
            )


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


TRAIN: Final = "train"
_CHUNK_BYTES: Final = 1 << 20
_SEED: Final = 123  # of the sentences that are held out
_SILENT: Final = Notices(log=False)
_ENDS: Final = tuple(".!?:;\"')]}”’»…。")


@dataclass(frozen=True)
class TextFile:
    """The lines of a split.

    Args:
        path: the file.
        settings: how lines are read: sentences that are read alike are in one split.
        portion: the sentences that belong to the split; None: all.
        lines: the numbers of the lines that belong to it; None: all.
    """

    path: Path
    settings: TextSettings
    portion: Portion | None = None
    lines: range | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all lines belong to the split."""
        return self.portion is None and self.lines is None

    def chunks(self, min_bytes: int, notices: Notices = _SILENT) -> Iterator[TextChunk]:
        """Yield the lines; those of each chunk are within at least so many bytes of the file."""
        for chunk in read_chunks(self.path, notices, min_bytes):
            yield chunk if self.is_whole else chunk.only(self._has)

    def _has(self, line: Line) -> bool:
        if self.portion is None:
            return self.lines is None or line.number in self.lines
        text = _normalize_line(self.settings, line.text)
        return self.portion.contains(" ".join(LEVELS["word"].split(text)) if self.settings.unit == "word" else text)


def text_files(paths: Mapping[str, Path], hold_out: Mapping[str, float], settings: TextSettings) -> dict[str, TextFile]:
    """Return the lines of each split: of its file, or held out of the training text.

    Of sentences, a random portion is held out, those that are read alike together; of a stream, its end.

    Raises:
        DataError: the training text cannot be read.
        UsageError: a share is not between 0 and 1, nothing remains for training, or there is no validation text.
    """
    for name in ("valid", *hold_out):
        if (name in paths) == (name in hold_out):
            raise UsageError(f"split {name!r} needs a file, or a share of the training text (--hold-out), and not both")
    files = {name: TextFile(path, settings) for name, path in paths.items()}
    if not hold_out:
        return files
    portions, train = split_portions(hold_out, _SEED, TRAIN), paths[TRAIN]
    if settings.mode == "sentences":
        held_out = {name: TextFile(train, settings, portion=portion) for name, portion in portions.items()}
    else:
        held_out = {name: TextFile(train, settings, lines=lines) for name, lines in _ranges(train, hold_out).items()}
    return {TRAIN: held_out.pop(TRAIN), **held_out, **{name: files[name] for name in files if name != TRAIN}}


def _ranges(train: Path, hold_out: Mapping[str, float]) -> dict[str, range]:
    """Return the line numbers of each split of a stream: of the training split, and then of those that are held out."""
    total = sum(chunk.text.count("\n") for chunk in read_chunks(train, _SILENT, _CHUNK_BYTES))
    counts = {name: max(1, round(share * total)) for name, share in hold_out.items()}
    end = total - sum(counts.values()) + 1
    if end < 2:
        raise UsageError(
            f"{train}: nothing is left of its {total} lines for {TRAIN!r}; expected more, or less held out"
        )
    ranges = {TRAIN: range(1, end)}
    for name, count in counts.items():
        ranges[name] = range(end, end + count)
        end += count
    return ranges


def mode_of(settings: TextSettings, train: Path, notices: Notices) -> str:
    """Return the mode of the settings or, without one, that which suits the beginning of the training text.

    Text whose lines are wrapped, with empty lines between its paragraphs, is a stream; other lines are sentences.
    """
    if settings.mode is not None:
        return settings.mode
    if settings.block_length is not None:
        return "stream"
    first = next(read_chunks(train, _SILENT, _CHUNK_BYTES), None)
    if settings.skip_empty or first is None or not _is_wrapped(first.text):
        return "sentences"
    reason = "lines are wrapped and empty lines end paragraphs, so the text is read as a stream"
    notices.add(f"{train}: {reason}; --mode stream says so, --mode sentences makes each line an example")
    return "stream"


def _is_wrapped(text: str) -> bool:
    """Return whether a text has empty lines, and at least half of the lines before others do not end a sentence."""
    lines = [line.rstrip(" \t") for line in text.split("\n")[:-1]]
    followed = [line for line, following in pairwise(lines) if line and following]
    going_on = sum(not line.endswith(_ENDS) for line in followed)
    return "" in lines[1:-1] and bool(followed) and 2 * going_on >= len(followed)
