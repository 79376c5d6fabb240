"""What a prepared folder holds, in a line."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structattn.text.folders.prepared import PreparedFolder


def print_summary(folder: Path) -> None:
    """Print the contents of a prepared folder."""
    from rich.console import Console
    from rich.markup import escape

    from structattn.support.environment import escape_control_characters
    from structattn.text.folders.prepared import open_prepared

    prepared = open_prepared(folder)
    parallel = prepared.parallel_sides is not None
    splits = ", ".join(_pairs(prepared, name) if parallel else _text(prepared, name) for name in prepared.splits)
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(escape_control_characters(str(folder)))}[/]: {prepared.kind}, {_symbols(prepared)}; {splits}"
    )


def _text(prepared: "PreparedFolder", name: str) -> str:
    from structattn.text.folders.text_statistics import text_statistics, unknown_share

    counts, found, share = prepared.header.splits[name], text_statistics(prepared, name), unknown_share(prepared, name)
    parts = [f"{name} {counts.sequences:,} sequences of {counts.tokens:,} tokens"]
    if found is not None:
        cut, skipped = f"{found.tokens_cut:,} tokens cut off", f"{found.lines_skipped:,} empty lines skipped"
        parts += [cut] * bool(found.tokens_cut) + [skipped] * bool(found.lines_skipped)
    if share is not None:
        parts.append(f"{share:.2%} <unk>")
    return " (".join((parts[0], ", ".join(parts[1:]) + ")")) if parts[1:] else parts[0]


def _pairs(prepared: "PreparedFolder", name: str) -> str:
    pairs = prepared.pairs(name)
    tokens = f"{pairs.source.num_tokens:,} and {pairs.target.num_tokens:,} tokens"
    return f"{name} {len(pairs):,} pairs of {tokens}"


def _symbols(prepared: "PreparedFolder") -> str:
    sides = prepared.parallel_sides
    if sides is None or sides.joint:
        return f"{prepared.vocabulary.size} symbols"
    return f"{sides.source.vocabulary.size} source and {sides.target.vocabulary.size} target symbols"
