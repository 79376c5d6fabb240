"""The files of a text: which lines belong to each split, and whether lines are sentences or a stream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from structattn.support.errors import UsageError
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.reading import Line, Notices, Portion, TextChunk, read_chunks, split_portions

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
        portion: the sentences that belong to the split; None: all.
        lines: the numbers of the lines that belong to it; None: all.
    """

    path: Path
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
        return line.number in self.lines if self.portion is None else self.portion.contains(line.text)  # type: ignore[operator]  # one of both is given


def text_files(paths: Mapping[str, Path], hold_out: Mapping[str, float], mode: str) -> dict[str, TextFile]:
    """Return the lines of each split: of its file, or held out of the training text.

    Of sentences, a random portion is held out, equal ones together; of a stream, its end.

    Raises:
        DataError: the training text cannot be read.
        UsageError: a share is not between 0 and 1, nothing remains for training, or there is no validation text.
    """
    for name in ("valid", *hold_out):
        if (name in paths) == (name in hold_out):
            raise UsageError(f"split {name!r} needs a file, or a share of the training text (--hold-out), and not both")
    files = {name: TextFile(path) for name, path in paths.items()}
    if not hold_out:
        return files
    portions, train = split_portions(hold_out, _SEED, TRAIN), paths[TRAIN]
    if mode == "sentences":
        held_out = {name: TextFile(train, portion=portion) for name, portion in portions.items()}
    else:
        held_out = {name: TextFile(train, lines=lines) for name, lines in _ranges(train, hold_out).items()}
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
