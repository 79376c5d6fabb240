"""Values that an optimizer proposes: they follow from the scores of earlier trials, and from nothing else."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from structattn.settings.sweep import SweepSettings
from structattn.support.errors import DataError, StructattnError
from structattn.sweeps.engines import ProcessPoolEngine
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.sweep import run_sweep
from structattn.sweeps.trials import make_trials
from structattn.sweeps.worker import JobResult, run_job

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

TPE = {"kind": "tpe", "startup": 3, "parallel": 2}


@pytest.fixture
def proposed(tree):
    """One cell of seven trials: three that are drawn, two proposals, two proposals."""
    tree["grid"] = {"language": {"w#w^R": tree["grid"]["language"]["w#w^R"]}}
    tree["random"]["model.dropout"] = {"kind": "uniform", "low": 0.0, "high": 0.5}
    tree["random"]["training.batches.batch_size"] = {"kind": "integer", "low": 4, "high": 12}
    return tree | {"restarts": 7, "sampler": TPE}


def sampled(folder):
    index = json.loads((folder / "trials.json").read_text())
    return {name: (each["restart"], each["sampled"]) for name, each in index.items()}


def test_the_first_trials_are_drawn_at_random_and_the_others_proposed(proposed, run_here, tmp_path):
    rows, jobs = run_here(proposed, tmp_path)
    drawn = make_trials(SweepSettings.model_validate(proposed | {"sampler": "random"}), tmp_path)
    found = [job.trial for job in jobs]
    assert [trial.restart for trial in found] == list(range(7))
    assert [trial.sampled for trial in found[:3]] == [trial.sampled for trial in drawn[:3]]
    assert all(trial.sampled != other.sampled for trial, other in zip(found[3:], drawn[3:], strict=True))
    for trial in found:
        assert 0.0005 <= trial.settings.training.optimizer.learning_rate <= 0.01
        assert 0 <= trial.settings.model.dropout <= 0.5
        assert trial.settings.training.batches.batch_size in range(4, 13)
    assert rows[0].validation.count == 7
    assert sampled(tmp_path) == {trial.name: (trial.restart, trial.sampled) for trial in found}
    assert "7 of 7 trials" in read_sweep_results(SweepSettings.model_validate(proposed), tmp_path).counts


def test_proposals_equal_those_of_an_optuna_study(proposed, run_here, tmp_path):
    """The first pair of proposals is what Optuna answers to the three drawn trials and their validation scores."""
    from structattn.support.seeds import derived_seed
    from structattn.sweeps.worker import SweepFolder

    _, jobs = run_here(proposed, tmp_path)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(
            seed=derived_seed(1, "tpe", "language", "w#w^R", 3) % 2**32, n_startup_trials=1, constant_liar=True
        )
    )
    distributions = {
        "training.optimizer.learning_rate": optuna.distributions.FloatDistribution(0.0005, 0.01, log=True),
        "model.dropout": optuna.distributions.FloatDistribution(0.0, 0.5),
        "training.batches.batch_size": optuna.distributions.IntDistribution(4, 12),
    }
    for job in jobs[:3]:
        score = SweepFolder(tmp_path).result(job.trial).score
        study.add_trial(optuna.trial.create_trial(params=job.trial.sampled, distributions=distributions, value=score))
    assert [study.ask(distributions).params for _ in range(2)] == [job.trial.sampled for job in jobs[3:5]]


@pytest.mark.apart
def test_proposals_depend_neither_on_the_engine_nor_on_interruptions(proposed, run_here, tmp_path):
    run_here(proposed, tmp_path / "here")
    sweep = SweepSettings.model_validate(proposed)
    run_sweep(sweep, tmp_path / "pool", lambda: ProcessPoolEngine(2), lambda status: None)
    assert sampled(tmp_path / "pool") == sampled(tmp_path / "here")

    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(copy.deepcopy(proposed), sort_keys=False))
    program = Path(__file__).with_name("killed_sweep.py")
    words = [sys.executable, program, file, tmp_path / "killed", "3", "0.4"]
    kills = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert int(kills) > 0
    assert sampled(tmp_path / "killed") == sampled(tmp_path / "here")


def test_what_was_proposed_is_kept_under_another_version_of_optuna(proposed, run_here, tmp_path, monkeypatch):
    _, jobs = run_here(proposed | {"restarts": 5}, tmp_path)

    class OtherSampler(optuna.samplers.RandomSampler):
        def __init__(self, seed, n_startup_trials, constant_liar):
            super().__init__(seed)

    monkeypatch.setattr(optuna.samplers, "TPESampler", OtherSampler)
    sweep = SweepSettings.model_validate(proposed | {"restarts": 5})
    with monkeypatch.context() as without:
        without.setattr("structattn.support.imports.find_spec", lambda name: None)
        assert "5 of 5 trials" in read_sweep_results(sweep, tmp_path).counts
    rows, more = run_here(proposed, tmp_path)
    assert [job.trial.restart for job in more] == [5, 6], "those that were trained are not trained again"
    assert rows[0].validation.count == 7
    assert list(sampled(tmp_path))[:5] == [job.trial.name for job in jobs]
    (tmp_path / "trials.json").write_text('{"0": {"cell": 1}}')
    with pytest.raises(DataError, match=r"trials\.json: cell: "):
        read_sweep_results(sweep, tmp_path)
    (tmp_path / "trials.json").unlink()
    assert "3 of 5 trials" in read_sweep_results(sweep, tmp_path).counts, "others would be proposed"


def test_what_other_settings_proposed_is_not_taken(proposed, run_here, tmp_path):
    run_here(proposed, tmp_path)
    before = sampled(tmp_path)
    proposed["random"]["model.dropout"]["high"] = 0.4
    _, jobs = run_here(proposed, tmp_path)
    assert not before.keys() & {job.trial.name for job in jobs}
    assert len(jobs) == len(sampled(tmp_path)) == 7


def test_a_failed_trial_tells_the_optimizer_nothing(proposed, tmp_path):
    class EngineThatFails:
        """Runs each job at once; a trial that is drawn fails, and one that is proposed."""

        max_jobs = 1

        def __init__(self):
            self.ended = []

        def start(self, job):
            result = JobResult("failed", "on purpose") if job.trial.restart in (1, 3) else run_job(job)
            self.ended.append((job.trial.restart, result))
            return job.trial.restart

        def wait(self, timeout):
            found, self.ended = self.ended, []
            return found

        def close(self):
            pass

    sweep = SweepSettings.model_validate(proposed)
    with pytest.raises(StructattnError, match="2 of 7 trials failed"):
        run_sweep(sweep, tmp_path, EngineThatFails, lambda status: None)
    assert len(sampled(tmp_path)) == 7
    assert read_sweep_results(sweep, tmp_path).counts == "5 of 7 trials have ended, 2 failed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"random": {}}, "proposes the values of `random`, which has none"),
        ({"halving": {"after": [1]}}, "remove `halving`"),
        ({"sampler": "bayes"}, "sampler"),
    ],
)
def test_what_a_sampler_does_not_fit_is_refused(proposed, changes, message):
    with pytest.raises(ValueError, match=message):
        SweepSettings.model_validate(proposed | changes)


def test_optuna_is_asked_for_before_the_first_trial(proposed, run_here, tmp_path, monkeypatch):
    monkeypatch.setattr("structattn.support.imports.find_spec", lambda name: None)
    with pytest.raises(StructattnError, match="optuna is not installed"):
        run_here(proposed, tmp_path)
    assert not list((tmp_path / "runs").iterdir())
