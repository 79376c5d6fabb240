"""Preparation of question formation and tense reinflection, as sentences for a language model or as parallel text."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_args

from structattn.settings.choices import PairLayout
from structattn.support.errors import DataError, UsageError
from structattn.support.files import sha256_of_file, write_unflushed
from structattn.support.progress import progress, track
from structattn.support.reading import read_errors
from structattn.support.seeds import numpy_generator
from structattn.tasks.loaded import require_counts
from structattn.tasks.transformations.rules import TRANSFORMATIONS, Pair, Transformation
from structattn.tasks.transformations.sampling import ambiguous_pairs, disambiguating_pairs, exclusion_keys
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.writing import (
    new_prepared_folder,
    path_in_header,
    require_empty_folder,
    source_entry,
    write_prepared,
)
from structattn.text.reading import Notices, read_lines
from structattn.text.tokenization.tokenizers import SymbolTokenizer, choose_vocabulary

GENERALIZATION: Final = "gen"
"""The split of pairs on which the hierarchical and the linear rule differ."""

_PUBLISHED_NAMES: Final = {"valid": "dev", "test": "test", GENERALIZATION: "gen"}


@dataclass(frozen=True)
class TransformationSizes:
    """Numbers of pairs of each split; the defaults are those of McCoy et al. (2020).

    With published files only that of ``train`` is used.

    Raises:
        UsageError: a number is below 1.
    """

    train: int = 100_000
    valid: int = 1_000
    test: int = 10_000
    gen: int = 10_000

    def __post_init__(self) -> None:
        require_counts(**asdict(self))


def prepare_transformation(
    folder: Path,
    name: str,
    *,
    published: Path | None = None,
    layout: PairLayout = "sentences",
    seed: int = 1,
    sizes: TransformationSizes = TransformationSizes(),
) -> None:
    """Draw the training pairs of a task, read or draw the others, and write a prepared folder.

    Training, validation and test pairs are one stream without repetitions, in that order, so that short sentences run
    out as in the published sets. No drawn pair occurs in the published files.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        name: a key of ``TRANSFORMATIONS``.
        published: a folder with the published files ``NAME.dev``, ``NAME.test`` and ``NAME.gen``; None: draw all sets.
        layout: ``sentences``: source and target one after the other, for a language model (DuSell & Cotterell 2025);
            ``parallel``: pairs for an encoder-decoder (McCoy et al. 2020), whose text is also kept beside the folder,
            in ``FOLDER.text``; that, too, must not exist, or be empty, or hold the text of this very command.
        seed: of the drawn pairs.
        sizes: numbers of drawn pairs.

    Raises:
        UsageError: there is no such task or layout.
        DataError: a published file is missing, or has a line that the rules do not give; or a folder is not empty.
    """
    if name not in TRANSFORMATIONS or layout not in get_args(PairLayout):
        raise UsageError(
            f"{name!r} as {layout!r}; expected one of {sorted(TRANSFORMATIONS)} as one of {list(get_args(PairLayout))}"
        )
    folder, task = Path(folder), TRANSFORMATIONS[name]
    require_empty_folder(folder)
    text = _text_folder(folder) if layout == "parallel" else None
    files = {} if published is None else {part: published / f"{name}.{end}" for part, end in _PUBLISHED_NAMES.items()}
    sources = [source_entry(path, part, folder) for part, path in files.items()] if text is None else []
    given = {part: _read_pairs(path, task) for part, path in files.items()}
    splits = _draw(task, given, seed, sizes)
    description = {"transformation": name, "seed": seed, "published": published is not None}
    if text is not None:
        _write_parallel(folder, text, splits, description)
        return
    _write_sentences(folder, task, splits, description, sources)


def _read_pairs(path: Path, task: Transformation) -> list[Pair]:
    """Read a published file, source TAB target; every target must be the right one."""
    pairs = []
    for line in read_lines(path, Notices()):
        sides = [tuple(side.split(" ")) for side in line.text.split("\t")]
        try:
            pair = Pair(sides[0], task.target(sides[0]))
        except ValueError as error:
            raise DataError(path, str(error), line.number) from None
        if sides[1:] != [pair.target]:
            raise DataError(path, f"expected source TAB target, the target {' '.join(pair.target)!r}", line.number)
        pairs.append(pair)
    if not pairs:
        raise DataError(path, "holds no pairs")
    return pairs


def _draw(
    task: Transformation, given: Mapping[str, Sequence[Pair]], seed: int, sizes: TransformationSizes
) -> dict[str, Sequence[Pair]]:
    generator = numpy_generator(seed, "transformation", task.name)
    seen = exclusion_keys(task, [pair.source for pairs in given.values() for pair in pairs])
    stream = ambiguous_pairs(task, generator, seen)
    splits: dict[str, Sequence[Pair]] = {}
    with progress("Drawing pairs", None, "pairs") as advance:
        for part, size in asdict(sizes).items():
            drawn = disambiguating_pairs(task, generator, seen) if part == GENERALIZATION else stream
            splits[part] = given.get(part) or list(track(islice(drawn, size), advance))
    return splits


def _write_sentences(
    folder: Path,
    task: Transformation,
    splits: Mapping[str, Sequence[Pair]],
    description: dict[str, Any],
    sources: list[dict[str, str]],
) -> None:
    lines = {part: [(*pair.source, *pair.target) for pair in pairs] for part, pairs in splits.items()}
    counts = Counter(word for line in lines["train"] for word in line)
    vocabulary = choose_vocabulary("word", {word: counts[word] for word in task.words}, min_count=0)
    tokenizer = SymbolTokenizer("word", vocabulary)
    write_prepared(
        folder,
        kind="sentences",
        vocabulary=vocabulary,
        tokenizer={"level": "word"},
        splits={part: (tokenizer.encode(" ".join(line)) for line in of_part) for part, of_part in lines.items()},
        sources=sources,
        extra=description,
    )


def _text_folder(folder: Path) -> Path:
    """Return ``FOLDER.text``, which has no files but those that an interrupted or repeated command may have written.

    Raises:
        DataError: it has others, or is a file, or its path is not UTF-8.
    """
    place = folder.absolute()
    text = place.with_name(f"{place.name}.text")
    path_in_header(text, folder)
    try:
        require_empty_folder(text)
    except DataError:
        names = {f"{part}.tsv" for part in asdict(TransformationSizes())}
        if not text.is_dir() or {entry.name for entry in text.iterdir()} != names:
            raise
    return text


def _write_parallel(
    folder: Path, text: Path, splits: Mapping[str, Sequence[Pair]], description: dict[str, Any]
) -> None:
    files = {part: text / f"{part}.tsv" for part in splits}
    contents = {
        files[part]: "".join(f"{' '.join(pair.source)}\t{' '.join(pair.target)}\n" for pair in pairs).encode()
        for part, pairs in splits.items()
    }
    if text.is_dir() and any(text.iterdir()):
        _require_equal(contents)
    else:
        with new_prepared_folder(text) as temporary:
            for path, content in contents.items():
                write_unflushed(temporary / path.name, content)
    splits_of_files = {part: [path] for part, path in files.items()}
    prepare_parallel(folder, splits_of_files, tokenizer=TokenizerSettings("word"), description=description)


def _require_equal(contents: Mapping[Path, bytes]) -> None:
    """Check that files have these contents.

    Raises:
        DataError: one has another, and belongs to other prepared data or to the user.
    """
    for path, content in contents.items():
        with read_errors(path):
            digest = sha256_of_file(path)
        if digest != hashlib.sha256(content).hexdigest():
            raise DataError(path, "exists and holds other pairs; remove it, or prepare into another folder")
