"""Vocabulary shortlists: the target tokens that a translation may contain, chosen by its source (Jean et al. 2015)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int32
from torch import Tensor

from structattn.decoding import pad_sequences
from structattn.support.errors import DataError
from structattn.support.json_files import read_json, write_json
from structattn.support.progress import progress
from structattn.support.special_tokens import EOS, UNK
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.translation.word_translations import likeliest_translations

FORMAT_VERSION = 1
NUM_TRANSLATIONS, NUM_FREQUENT = 100, 100

_logger = logging.getLogger("structattn")


@dataclass(frozen=True)
class Shortlist:
    """Candidates for translations.

    Args:
        translations: the likeliest target tokens of each source token, -1 after the last one.
        frequent: target tokens that are candidates for every source.
    """

    translations: Int32[np.ndarray, "source translations"]
    frequent: Int32[np.ndarray, " frequent"]

    def candidates(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]]
    ) -> Int[Tensor, "batch candidates"]:
        """Return the candidates of each source, in ascending order and then <pad>, with the tokens of its prefix.

        <eos> and <unk> are always among them.
        """
        found = [self._of_source(*pair) for pair in zip(sources, prefixes, strict=True)]
        return pad_sequences(found)[0]

    def _of_source(self, source: Sequence[int], prefix: Sequence[int]) -> Any:
        translations = self.translations[list(source)].ravel()
        others = np.array([EOS, UNK, *prefix], dtype=np.int32)
        return np.unique(np.concatenate([translations[translations >= 0], self.frequent, others]))


def shortlist_path(run_dir: Path) -> Path:
    """Return the path of the shortlist in a run folder."""
    return run_dir / "shortlist.json"


def run_shortlist(run: LoadedRun) -> Shortlist:
    """Return the shortlist of a run; where it has none, it is learned from the training data, and kept.

    Raises:
        DataError: the file is damaged, or belongs to other data.
    """
    path = shortlist_path(run.run_dir)
    if not path.exists():
        content = _learned(run)
        write_json(path, "shortlist", content, indent=None)
        _logger.info("%s: written; later translations with a shortlist read it", path)
    return _read(path, run)


def _learned(run: LoadedRun) -> dict[str, Any]:
    """Learn the 100 likeliest translations of each source token, and the 100 most frequent target tokens."""
    pairs, sides = run.prepared.pairs("train"), run.prepared.sides
    num_source, num_target = sides.source.vocabulary.size, sides.target.vocabulary.size
    with progress("Learning the shortlist", len(pairs), "pairs") as advance:
        table = likeliest_translations(pairs, num_source, num_target, NUM_TRANSLATIONS, advance)
    counts = np.bincount(pairs.target.tokens, minlength=num_target)
    frequent = np.argsort(-counts, kind="stable")[:NUM_FREQUENT]
    return {
        "format_version": FORMAT_VERSION,
        "data_digest": run.prepared.digest,
        "frequent": frequent[counts[frequent] > 0].tolist(),
        "translations": [row[row >= 0].tolist() for row in table],
    }


def _read(path: Path, run: LoadedRun) -> Shortlist:
    content = read_json(path, "shortlist")
    version, digest = content.get("format_version"), content.get("data_digest")
    if version != FORMAT_VERSION or digest != run.prepared.digest:
        raise DataError(
            path,
            f"has format version {version} and belongs to data with digest {digest}; expected {FORMAT_VERSION} and "
            f"{run.prepared.digest}; remove it to learn it anew",
        )
    rows = content["translations"]
    translations = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int32)
    for row, found in zip(translations, rows, strict=True):
        row[: len(found)] = found
    return Shortlist(translations, np.array(content["frequent"], dtype=np.int32))
