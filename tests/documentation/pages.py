"""Blocks of code in Markdown pages: commands, Python, files to write, and changes to files."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^>]*) -->\n)?"
    r"^```(?:\{code-block\} )?(?P<language>[^\n]*)\n"
    r"(?::caption: (?P<caption>\S+)\n\n?)?(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code; with a caption it is the content of that file, or a change to it."""

    language: str
    text: str
    caption: str | None
    not_run: str | None  # the reason


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    return [
        Block(
            found["language"],
            found["text"],
            found["caption"],
            found["comment"].removeprefix("Not run: ") if (found["comment"] or "").startswith("Not run: ") else None,
        )
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def commands(block: Block) -> list[str]:
    """Return the commands of structattn in a block, continued lines joined."""
    joined = block.text.replace("\\\n", " ")
    parts = [part.strip() for line in joined.split("\n") for part in line.split("|")]
    return [part for part in parts if part.startswith("structattn ")]


def changed(text: str, diff: str) -> str:
    """Apply a diff without line numbers, whose hunks are separated by ``@@``: each must match exactly one place."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text
