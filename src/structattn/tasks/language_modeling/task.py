"""The task of predicting the tokens of text."""

from structattn.data.folders import PreparedFolder
from structattn.settings.run import RunSettings
from structattn.tasks.language_modeling.batches import checked_batches
from structattn.tasks.next_token.examples import examples_of
from structattn.tasks.next_token.task import NextTokenTask
from structattn.tasks.objective import Objective


def language_modeling_task(prepared: PreparedFolder, settings: RunSettings) -> NextTokenTask:
    """Train on ``train``, score ``valid``.

    Raises:
        DataError, SettingsError: the folder or the batches do not suit.
    """
    training = settings.training
    batches = checked_batches(prepared, training.batches)
    return NextTokenTask(
        train=examples_of(prepared, "train", batches, settings.seed),
        valid=examples_of(prepared, "valid", batches),
        loss=training.loss,
        objective=Objective.of(training),
    )
