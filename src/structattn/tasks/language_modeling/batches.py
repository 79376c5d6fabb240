"""Which batches suit which text."""

from structattn.data.folders import PreparedFolder
from structattn.settings.training import Batches, PairBatches, StreamBatches
from structattn.support.errors import DataError, SettingsError
from structattn.tasks.next_token.examples import BatchSettings

KINDS = ("sentences", "stream")


def checked_batches(prepared: PreparedFolder, batches: Batches) -> BatchSettings:
    """The batches, if they suit: a folder of sentences is read in batches of sentences, a stream in windows.

    Raises:
        DataError: the folder holds no text.
        SettingsError: the batches are of the other kind.
    """
    if prepared.kind not in KINDS:
        expected = " or ".join(repr(kind) for kind in KINDS)
        raise DataError(
            prepared.path, f"holds data of kind {prepared.kind!r}; the task language_modeling needs {expected}"
        )
    if isinstance(batches, PairBatches) or isinstance(batches, StreamBatches) != (prepared.kind == "stream"):
        expected = "'stream'" if prepared.kind == "stream" else "'sequences' or 'tokens'"
        raise SettingsError(
            f"training.batches.kind: {batches.kind!r} does not suit {prepared.path}, whose kind is {prepared.kind!r}; "
            f"expected {expected}"
        )
    return batches
