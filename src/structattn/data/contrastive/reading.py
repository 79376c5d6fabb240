"""Contrastive pairs from whatever holds them."""

from pathlib import Path

from structattn.data.contrastive.aligned_files import is_aligned, read_aligned
from structattn.data.contrastive.contrast import Contrast
from structattn.data.contrastive.lingeval97 import read_lingeval97
from structattn.data.text.reading import Notices
from structattn.support.errors import DataError


def read_contrasts(path: Path, notices: Notices) -> list[Contrast]:
    """Read contrastive pairs, strictly.

    Args:
        path: a JSON file of LingEval97's form; or a folder of aligned files, as DistilLingEval has them; or a folder of
            such folders. ``.gz`` is decompressed.
        notices: takes what the user should know.

    Raises:
        DataError: something is missing or malformed; the message gives file, line and reason.
    """
    if not path.is_dir():
        return read_lingeval97(path, notices)
    folders = [path] if is_aligned(path) else sorted(filter(is_aligned, path.iterdir()))
    if not folders:
        raise DataError(path, "has no files src.*, tgt.correct.* and tgt.incorrect.*, nor folders with such files")
    return [contrast for folder in folders for contrast in read_aligned(folder, notices)]
