"""Small parallel texts, written and prepared."""

from types import SimpleNamespace

import pytest

from structattn.tasks.translation.filters import Filters
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared

NO_FILTERS = Filters()
WORDS = TokenizerSettings("word", joint=False)
GOOD = "".join(f"s{number} rot\tt{number} red\n" for number in range(1, 7))


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def two_files(folder, table, name="train"):
    """A table as two files, source and target."""
    rows = [line.split("\t") for line in table.split("\n")[:-1]]
    sides = ("".join(f"{row[side]}\n" for row in rows) for side in (0, 1))
    return tuple(write(folder / f"{name}.{side}", text) for side, text in zip(("de", "en"), sides, strict=True))


def prepare(folder, table=GOOD, tokenizer=WORDS, held_out=GOOD, filters=NO_FILTERS, output="folder", **options):
    """A table as training text, and another to validate with; the opened folder and the notices."""
    splits = {"train": two_files(folder, table), "valid": two_files(folder, held_out, "valid")}
    notices = prepare_parallel(folder / output, splits, tokenizer=tokenizer, filters=filters, **options)
    return open_prepared(folder / output), notices


def lines(prepared, split="train"):
    """(line, source text, target text) of all pairs."""
    pairs, sides = prepared.pairs(split), prepared.sides
    return [
        (int(pairs.lines[index]), sides.source.decode(source), sides.target.decode(target))
        for index, (source, target) in ((index, pairs[index]) for index in range(len(pairs)))
    ]


@pytest.fixture(scope="session")
def parallel():
    """The functions and texts above."""
    return SimpleNamespace(GOOD=GOOD, WORDS=WORDS, write=write, two_files=two_files, prepare=prepare, lines=lines)
