"""A small sweep of fast trials."""

import copy
from dataclasses import asdict

import pytest
import torch._dynamo  # noqa: F401 - the first optimizer would import it, in seconds of what is timed here

from structattn.runs.folder import RunFolder
from structattn.runs.logs import EventLog
from structattn.settings.sweep import SweepSettings
from structattn.support.json_files import DIGEST, json_with_digest
from structattn.sweeps.sweep import run_sweep
from structattn.sweeps.worker import run_job

TREE = {
    "base": {
        "task": "formal_language",
        "prepare": {"train": 40, "valid": 10, "test_per_length": 1, "train_lengths": [2, 6], "test_lengths": [2, 8]},
        "model": {"d_model": 4, "d_ff": 4, "num_heads": 1, "layers": "1"},
        "training": {"max_updates": 4, "checkpoint_every": 2},
    },
    "grid": {
        "language": {"w#w^R": {"prepare.language": "marked-reversal"}, "Dyck": {"prepare.language": "dyck"}},
        "model": {"Tf": {}, "Tf+Sup": {"model.layers": "superposition-2"}},
    },
    "random": {"training.optimizer.learning_rate": {"low": 0.0005, "high": 0.01}},
    "restarts": 2,
}


class EngineInThisProcess:
    """An engine that runs each job at once, and lists it in ``started``."""

    max_jobs = 1

    def __init__(self):
        self.started, self._ended = [], []

    def start(self, job):
        self.started.append(job)
        self._ended.append((len(self.started), run_job(job)))
        return len(self.started)

    def wait(self, timeout):
        ended, self._ended = self._ended, []
        return ended

    def close(self):
        pass


@pytest.fixture(scope="session")
def run_here():
    """run_here(tree, folder, trial_results) runs a sweep in this process; returns its rows and jobs."""

    def run(tree, folder, trial_results=None):
        engine = EngineInThisProcess()
        sweep = SweepSettings.model_validate(tree)
        rows = run_sweep(sweep, folder, lambda: engine, lambda status: None, trial_results)
        return rows, engine.started

    return run


@pytest.fixture
def write_trials():
    """write_trials(path, trials) writes a file of trials, each line with the digest of its content."""

    def write(path, trials):
        contents = [{name: value for name, value in trial.items() if name != DIGEST} for trial in trials]
        path.write_text("".join(json_with_digest("trial", each["trial"], each, indent=None) for each in contents))

    return write


@pytest.fixture(scope="session")
def unchanged_tree():
    return TREE


@pytest.fixture
def tree(unchanged_tree):
    return copy.deepcopy(unchanged_tree)


@pytest.fixture
def sweep(tree):
    return SweepSettings.model_validate(tree)


CARD = {"format_version": 1, "version": "0.1.0", "task": "formal_language", "seed": 1, "parameters": 1,
        "vocabulary_size": 5, "settings_digest": "s", "environment": {}, "hardware": {"threads": 1},
        "data": {"path": "p", "kind": "formal_language", "digest": "d"}}  # fmt: skip


@pytest.fixture
def write_log():
    """write_log(folder, scores, bound) writes the event log and the card of a run; of a finished one if ``end``."""

    def write(folder, scores, bound=None, end=True):
        folder.mkdir(parents=True, exist_ok=True)
        run = RunFolder(folder)
        with EventLog(run.events) as log:
            for update, score in enumerate(scores, start=1):
                difference = None if bound is None else score - bound
                log.write("validation", update=update, cross_entropy=score, perplexity=2.0, lower_bound=bound,
                          cross_entropy_difference=difference, improved=True)  # fmt: skip
            best = min(scores)
            result = {"reason": "updates", "update": len(scores), "epoch": 1, "best_update": 1 + scores.index(best),
                      "best_cross_entropy": best}  # fmt: skip
            run.write_card({**CARD, "result": {**result, "event_log": asdict(log.prefix)} if end else None})
            if end:
                log.write("end", **result)

    return write
