from dataclasses import replace

import numpy as np
import pytest

from structattn.settings.run import resolve_settings
from structattn.settings.training import TrainingSettings
from structattn.tasks.task import Scores
from structattn.training.progress import (
    after_update,
    after_validation,
    current_epoch,
    first_progress,
    planned_updates,
    reason_to_stop,
    validation_is_due,
)

SETTINGS = TrainingSettings()


def scores(cross_entropy):
    return Scores(1, 1, cross_entropy, 2.0)


def test_an_epoch_ends_with_its_last_batch():
    progress = first_progress(SETTINGS)
    seen = []
    for used in (2, 2, 1, 2):
        progress = after_update(progress, [np.arange(3)] * used, 5)
        seen.append((progress.update, progress.epoch, progress.position, current_epoch(progress)))
    assert seen == [(1, 0, 2, 1), (2, 0, 4, 1), (3, 1, 0, 1), (4, 1, 2, 2)]
    assert progress.examples_since_validation == 21
    assert after_validation(progress, scores(1.0), SETTINGS).examples_since_validation == 0


def test_intervals_in_examples_do_not_drift():
    """From the ends of epochs, for instance, whose number of examples is a multiple."""
    settings = TrainingSettings.model_validate({"validate_every": {"examples": 10}})
    progress, validated = first_progress(settings), []
    for update in range(1, 11):
        progress = after_update(progress, [np.arange(3)], 5)
        if validation_is_due(progress, settings):
            validated.append(update)
            progress = after_validation(progress, scores(1.0), settings)
    assert validated == [4, 7, 10]


class Order:
    """One update in each of the first two epochs, two in the third, three in the others."""

    def updates_in_epoch(self, epoch):
        return (1, 1, 2)[epoch] if epoch < 3 else 3


@pytest.mark.parametrize(("epochs", "updates"), [(1, 1), (2, 2), (3, 4), (6, 13)])
def test_planned_updates_follow_the_curriculum(epochs, updates):
    training = {"curriculum": [{"max_length": 5, "epochs": 2}, {"max_length": 9}], "max_epochs": epochs}
    settings = resolve_settings({"task": "formal_language", "data": "x", "training": training})
    assert planned_updates(settings, Order()) == updates


def test_early_stopping_requires_a_strict_improvement():
    progress = replace(first_progress(SETTINGS), update=1)
    bad = []
    for score in (2.0, 2.0, 1.9999999, 2.5, 1.0):
        progress = after_validation(progress, scores(score), SETTINGS)
        bad.append(progress.bad_validations)
    assert bad == [0, 1, 0, 1, 0]
    assert (progress.best_score, progress.best_update) == (1.0, 1)


def test_validations_in_a_curriculum_do_not_count_against_patience():
    training = {"curriculum": [{"max_length": 5}, {"max_length": 9}], "schedule": {"kind": "plateau", "patience": 0}}
    settings = TrainingSettings.model_validate(training)
    progress, bad = after_validation(first_progress(settings), scores(1.0), settings), []
    for epoch, position in ((0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)):
        progress = replace(progress, epoch=epoch, position=position)
        progress = after_validation(progress, scores(2.0), settings)
        bad.append((progress.bad_validations, progress.schedule.learning_rate < settings.optimizer.learning_rate))
    assert bad == [(0, False)] * 4 + [(1, True), (2, True)]


@pytest.mark.parametrize(
    ("every", "update", "position", "last", "due"),
    [
        (None, 0, 0, 0, False),
        (None, 7, 0, 0, True),
        (None, 7, 0, 7, False),
        (None, 7, 3, 0, False),
        (3, 6, 2, 3, True),
        (3, 6, 2, 6, False),
        (3, 7, 0, 6, False),
    ],
)
def test_validation_is_due(every, update, position, last, due):
    progress = replace(first_progress(SETTINGS), update=update, position=position, last_validation=last)
    assert validation_is_due(progress, TrainingSettings(validate_every=every)) is due


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_epochs": 3}, "epochs"),
        ({"max_epochs": 4}, None),
        ({"max_epochs": None, "max_updates": 30}, "updates"),
        ({"early_stopping_patience": 2}, "early_stopping"),
        ({"early_stopping_patience": None}, None),
        ({"max_minutes": 1.5}, "time"),
        ({"max_minutes": 1.6}, None),
    ],
)
def test_reason_for_the_end_of_a_run(limits, reason):
    progress = replace(first_progress(SETTINGS), update=30, epoch=3, bad_validations=2)
    assert reason_to_stop(progress, TrainingSettings.model_validate({"max_epochs": 9} | limits), 1.5) == reason
