"""A run that fails before its first update makes way for another, unless something would be lost."""

import pytest

from structattn.models.language_model import LanguageModel
from structattn.support.errors import Interrupted
from structattn.training import assembly
from structattn.training.run import StopFlag, StopRequested
from structattn.training.run_training import train


@pytest.fixture
def started(small_settings, tmp_path, monkeypatch):
    """Return a function that starts a run in which a method raises an error, and returns its folder."""

    def start(error, kind, method, on_validation=None):
        def fail(*_, **__):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(kind, method, fail)
            with pytest.raises((type(error), Interrupted)):
                train(small_settings(max_updates=4), tmp_path / "run", on_validation=on_validation)
        return tmp_path / "run"

    return start


def test_a_run_that_fails_before_its_first_update_makes_way_for_another(small_settings, started):
    folder = started(RuntimeError("boom"), LanguageModel, "forward")
    assert not folder.exists()
    other = small_settings(max_updates=4, max_grad_norm=2.0)
    assert train(other, folder).update == 4


@pytest.mark.parametrize("function", ["CheckpointStore", "distribute"])
def test_a_run_that_cannot_be_opened_makes_way_for_another(small_settings, started, function):
    folder = started(RuntimeError("boom"), assembly, function)
    assert not folder.exists()
    assert train(small_settings(max_updates=4, max_grad_norm=2.0), folder).update == 4


def test_beside_a_file_of_others_it_can_be_resumed(small_settings, started):
    folder = started(
        RuntimeError("boom"), LanguageModel, "forward", lambda validated: (validated.run_dir / "notes.txt").touch()
    )
    assert train(small_settings(max_updates=4), folder, resume=True).update == 4
    assert (folder / "notes.txt").exists()


def test_a_run_that_is_interrupted_before_its_first_update_can_be_resumed(small_settings, started):
    folder = started(StopRequested("SIGTERM"), StopFlag, "check")
    assert train(small_settings(max_updates=4), folder, resume=True).update == 4
