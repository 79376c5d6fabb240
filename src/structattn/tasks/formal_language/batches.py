"""Which batches suit strings of a formal language."""

from structattn.data.folders import PreparedFolder
from structattn.settings.training import Batches, PairBatches, StreamBatches
from structattn.support.errors import DataError, SettingsError
from structattn.tasks.next_token.examples import BatchSettings

KIND = "formal_language"


def checked_batches(prepared: PreparedFolder, batches: Batches) -> BatchSettings:
    """The batches, if they suit: data of another kind are refused, and windows, since a string is an example.

    Raises:
        DataError: the folder holds no formal language.
        SettingsError: the batches are those of a stream.
    """
    if prepared.kind != KIND:
        raise DataError(prepared.path, f"holds data of kind {prepared.kind!r}; the task formal_language needs {KIND!r}")
    if isinstance(batches, StreamBatches):
        raise SettingsError("training.batches.kind: 'stream' would join strings; expected 'sequences' or 'tokens'")
    if isinstance(batches, PairBatches):
        raise SettingsError("training.batches.kind: 'pairs' are for translation; expected 'sequences' or 'tokens'")
    return batches
