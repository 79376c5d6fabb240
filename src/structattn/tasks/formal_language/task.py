"""The task of predicting the symbols of a formal language."""

from structattn.data.folders import PreparedFolder
from structattn.settings.run import RunSettings
from structattn.tasks.formal_language.batches import checked_batches
from structattn.tasks.formal_language.scores import split_lower_bound
from structattn.tasks.next_token.examples import examples_of
from structattn.tasks.next_token.task import NextTokenTask
from structattn.tasks.objective import Objective


def formal_language_task(prepared: PreparedFolder, settings: RunSettings) -> NextTokenTask:
    """Train on ``train``, score ``valid`` against its lower bound.

    Raises:
        DataError, SettingsError: the folder or the batches do not suit.
    """
    training = settings.training
    batches = checked_batches(prepared, training.batches)
    return NextTokenTask(
        train=examples_of(prepared, "train", batches, settings.seed),
        valid=examples_of(prepared, "valid", batches),
        loss=training.loss,
        lower_bound=split_lower_bound(prepared, "valid"),
        objective=Objective.of(training),
    )
