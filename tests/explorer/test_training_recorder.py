"""Recordings at each validation: they follow the model in training, and change nothing."""

import numpy as np
import pytest
from tests.program import invoke, succeed

from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import TrainingRecorder, analyze_run
from structattn.loading.runs import open_run
from structattn.settings.run import resolve_settings
from structattn.settings.training import Budget
from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train

MODEL = {"layers": "hard.superposition-3", "d_model": 8, "num_heads": 2, "d_ff": 8, "dropout": 0.2}


@pytest.fixture
def settings(tmp_path):
    prepare_formal_language(tmp_path / "data", "dyck", sizes=FormalLanguageSizes(20, 4, 1, (4, 6), (4, 6)))
    tree = {"task": "formal_language", "data": str(tmp_path / "data"), "model": MODEL, "training": {"max_epochs": 3}}
    return resolve_settings(tree)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_examples_are_recorded_as_training_goes_on(settings, tmp_path):
    train(settings, tmp_path / "plain")
    train(settings, tmp_path / "recorded", on_validation=TrainingRecorder((2, 0), depths=2))
    assert (tmp_path / "plain/events.jsonl").read_bytes() == (tmp_path / "recorded/events.jsonl").read_bytes()
    folder = tmp_path / "recorded/records/updates"
    assert {path.name for path in folder.iterdir()} == {"0.json", "2.json", "4.json", "6.json"}
    recordings = [read_recording(folder / f"{update}.json") for update in (0, 2, 4, 6)]
    assert [recording.run["update"] for recording in recordings] == [0, 2, 4, 6]
    assert [(each.split, each.example) for each in recordings[0].examples] == [("valid", 2), ("valid", 0)]
    assert len({recording.examples[0].records[-1].actions.tobytes() for recording in recordings}) == 4
    last = read_recording(analyze_run(open_run(tmp_path / "recorded", "last"), "valid", [2])).examples[0]
    np.testing.assert_array_equal(last.surprisal, recordings[-1].examples[0].surprisal)
    np.testing.assert_array_equal(last.records[-1].actions, recordings[-1].examples[0].records[-1].actions)


def test_a_resumed_run_has_the_same_recordings(settings, tmp_path):
    recorder = TrainingRecorder((1,))
    train(settings, tmp_path / "a/run", on_validation=recorder)
    train(settings, tmp_path / "b/run", on_validation=recorder, pause_after=Budget(3, "updates"))
    train(None, tmp_path / "b/run", resume=True, on_validation=recorder)
    for name in ("events.jsonl", "records/updates/2.json", "records/updates/6.json"):
        assert (tmp_path / "a/run" / name).read_bytes() == (tmp_path / "b/run" / name).read_bytes()
    assert contents(tmp_path / "a/run/records/updates") == contents(tmp_path / "b/run/records/updates")


def test_the_command_records_and_refuses_examples_that_do_not_exist(settings, tmp_path):
    (tmp_path / "settings.yaml").write_text(settings.model_dump_json())
    arguments = ["train", str(tmp_path / "settings.yaml"), "-o", str(tmp_path / "run"), "training.max_epochs=1"]
    refused = invoke(*arguments, "--record", "4")
    assert refused.exit_code == 2
    assert "valid has no example 4; expected 0 to 3" in refused.output
    assert not (tmp_path / "run").exists()
    succeed(*arguments, "--record", "3", "--record", "0")
    assert set(contents(tmp_path / "run/records/updates")) == {"0.json", "2.json"}


def test_parts_of_a_model_are_not_recorded(settings, tmp_path):
    tree = settings.model_dump(mode="json")
    tree["training"] |= {"devices": 2, "strategy": "fsdp", "gradient_accumulation_steps": 2}
    with pytest.raises(UsageError, match="on_validation needs the whole model"):
        train(resolve_settings(tree), tmp_path / "run", on_validation=TrainingRecorder((0,)))
    assert not (tmp_path / "run").exists()
