"""Two evaluated translation runs against each other."""

from collections.abc import Mapping
from pathlib import Path

from structattn.data.prepared import PreparedFolder, open_prepared
from structattn.evaluation.translation import hypotheses_path
from structattn.evaluation.translation_metrics import Difference, compared
from structattn.settings.run import load_settings
from structattn.support.errors import StructattnError, UsageError
from structattn.training.run_folder import RunFolder


def compared_runs(
    first: Path, second: Path, split: str, samples: int = 1000, data: Path | None = None
) -> Mapping[str, Difference]:
    """How the kept translations of two runs differ.

    Args:
        first: a run folder.
        second: another one.
        split: whose translations.
        samples: resampled corpora.
        data: where the prepared folder is, if it was moved.

    Raises:
        StructattnError: a folder is no run folder, or holds no translations of the split.
        UsageError: the runs translate different lines into different ones.
    """
    sources = [_prepared(folder, data).texts(split, "source") for folder in (first, second)]
    references = [_prepared(folder, data).texts(split, "target") for folder in (first, second)]
    if sources[0] != sources[1] or references[0] != references[1]:
        raise UsageError(f"{first} and {second} do not translate the same lines of {split!r}")
    return compared(_translations(first, split), _translations(second, split), references[0], samples)


def _prepared(folder: Path, data: Path | None) -> PreparedFolder:
    if not RunFolder(folder).holds_a_run():
        raise StructattnError(f"{folder} is not a run folder: it has no settings.yaml")
    return open_prepared(data or load_settings(RunFolder(folder).settings).data)


def _translations(folder: Path, split: str) -> list[str]:
    path = hypotheses_path(folder, split)
    if not path.exists():
        raise StructattnError(f"{path} is missing; `structattn evaluate {folder} --split {split}` writes it")
    return path.read_text(encoding="utf-8").split("\n")[:-1]
