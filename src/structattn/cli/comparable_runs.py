"""Whether runs can be compared: all are of the same data, and those of one group have the same settings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from structattn.report.runs import Run
from structattn.runs.folder import flatten
from structattn.support.errors import DataError, UsageError, quoted
from structattn.text.folders.header import Header, read_header

_HOW_DRAWN: Final = (  # other fields of a header follow from these and the seed, as numbers of tokens
    "language", "variant", "definition", "transduction", "transformation", "protocol", "test_seed", "train_lengths",
    "test_lengths", "max_lengths", "short", "short_lengths",
)  # fmt: skip
_WITHOUT_EFFECT: Final = (
    *("training.num_threads", "training.checkpoint_every", "training.keep_checkpoints"),
    *("training.devices", "training.nodes", "training.strategy"),
)
_SHOWN = 5  # fields in a message


def require_same_data(runs: Sequence[Run]) -> None:
    """Check that runs were trained on the same data, or on data drawn alike with seeds of their own.

    How data were drawn is read from the prepared folders or, where these have moved, from the scores.

    Raises:
        UsageError: two runs were not; the message has both, and what differs.
    """
    first = runs[0]
    for other in runs[1:]:
        if other.data_digest != first.data_digest and (differing := _different_data(first, other)):
            raise UsageError(
                f"{first.folder} and {other.folder} are of different data: {differing}; expected the same data, or "
                "data that differ in the seed alone"
            )


def _different_data(first: Run, other: Run) -> str:
    """Return what differs in the data of two runs, whose digests do; empty: the seed alone."""
    headers = _trained_header(first), _trained_header(other)
    if headers[0] is not None and headers[1] is not None:
        old, new = _of_header(headers[0]), _of_header(headers[1])
    else:
        old, new = _of_scores(first), _of_scores(other)
    fields = [field for field in {**old, **new} if old.get(field) != new.get(field)]
    return ", ".join(f"{field} is {_shown(old.get(field))} and {_shown(new.get(field))}" for field in fields[:_SHOWN])


def _shown(value: object) -> str:
    return quoted(value)


def _trained_header(run: Run) -> Header | None:
    """Return the header of the data that a run was trained on; None if they have moved or changed."""
    try:
        header, digest = read_header(Path(str(run.settings["data"])))
    except DataError:
        return None
    return header if digest == run.data_digest else None


def _of_header(header: Header) -> Mapping[str, Any]:
    """Return what data of one kind have in common, whatever their seed; of data that are not drawn, their files."""
    if "seed" not in header.extra or header.extra.get("published"):
        return header.files
    drawn: dict[str, Any] = {name: header.extra[name] for name in _HOW_DRAWN if name in header.extra}
    # With the protocol hard, the numbers of strings depend on how many well-shaped negatives a seed finds.
    counted = () if drawn.get("protocol") == "hard" else ("train", "test")
    counts = {f"number of {name} examples": header.splits[name].sequences for name in counted if name in header.splits}
    return {"kind": header.kind, **drawn, **counts}


def _of_scores(run: Run) -> Mapping[str, Any]:
    if "language" in run.data or "transduction" in run.data:
        return {name: value for name, value in run.data.items() if name != "name"}
    return {"digest": run.data_digest}


def differing_settings(groups: Iterable[Sequence[Run]], by: str) -> list[str]:
    """Return the fields in which runs of one group differ, but for the seed, the data and what changes no result."""
    fields: dict[str, None] = {}
    for first, *others in ([flatten(run.settings) for run in runs] for runs in groups):
        for other in others:
            fields |= dict.fromkeys(name for name in {**first, **other} if first.get(name) != other.get(name))
    free = ("seed", "data", by, *_WITHOUT_EFFECT)
    return [name for name in fields if name not in free and not name.startswith(f"{by}.")]
