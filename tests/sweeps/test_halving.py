"""Successive halving: which trials go on, and that these are the trials that they would be alone."""

import copy
import json
import logging
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.program import invoke

from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.settings.sweep import Halving, SweepSettings, load_sweep
from structattn.settings.training import Budget
from structattn.support.errors import Interrupted, SettingsError, StructattnError
from structattn.sweeps.comparison import compare_with_published
from structattn.sweeps.engines import RayEngine, SlurmEngine
from structattn.sweeps.outcome import Outcome, outcome_after, trial_result
from structattn.sweeps.plan import make_bracket
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.sweep import run_sweep
from structattn.sweeps.table import select_best
from structattn.sweeps.trials import cells_of, make_trials, trials_of
from structattn.sweeps.worker import prepare_trial_data
from structattn.training import loop
from structattn.training.run_training import train

EPOCHS = 4
HALVING = {"after": [1, 2], "keep": 0.5}


@pytest.fixture
def halved(tree):
    """Two cells of four trials: four updates an epoch, rungs after one and two of four epochs."""
    return with_halving(tree)


def with_halving(tree):
    tree["grid"].pop("model")
    tree["base"]["training"] = {"max_epochs": EPOCHS, "early_stopping_patience": None}
    tree["base"]["model"]["dropout"] = 0.1
    return tree | {"restarts": 4, "halving": HALVING}


@pytest.fixture
def one_cell(halved):
    """The second of the two cells."""
    return halved | {"grid": {"language": {"Dyck": halved["grid"]["language"]["Dyck"]}}}


@pytest.fixture(scope="module")
def undisturbed(unchanged_tree, run_here, tmp_path_factory):
    """The sweep once, for tests that only read it: folder, file of trials, rows and jobs."""
    place = tmp_path_factory.mktemp("undisturbed")
    stored = place / "stored.trials.jsonl"
    rows, jobs = run_here(with_halving(copy.deepcopy(unchanged_tree)), place / "sweep", stored)
    return SimpleNamespace(folder=place / "sweep", stored=stored, rows=rows, jobs=jobs)


def contents(run_dir):
    """Return what must not depend on halving: checkpoints, event log, choice of the best."""
    names = ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json", "events.jsonl", "best.json")
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in run_dir.rglob("*") if path.name in names}


def survivors(rows):
    return [trial.name for row in rows for trial in row.savings.trials if not trial.stopped]


def check_against_trials_alone(tree, folder, rows, alone, going_on=(2, 1)):
    """Train all trials alone; check that those that went on are the best ones, and equal.

    Args:
        going_on: numbers of trials that go on after one and two epochs.
    """
    sweep = SweepSettings.model_validate(tree)
    for cell in cells_of(sweep):
        trials = [trial for trial in make_trials(sweep, folder) if trial.cell == cell]
        for trial in trials:
            train(trial.settings, alone / trial.name)
        for epochs, count in zip((1, 2), going_on, strict=True):
            trials = sorted(trials, key=lambda trial: best_score(alone / trial.name, epochs))[:count]
        for trial in trials:
            assert trial.name in survivors(rows)
            assert contents(folder / "runs" / trial.name) == contents(alone / trial.name)


def best_score(run_dir, epochs):
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    within = [event for event in events if event["event"] == "validation" and event["epoch"] <= epochs]
    return min(event["cross_entropy_difference"] for event in within)


def test_the_best_trials_go_on_and_are_those_trained_alone(one_cell, undisturbed, tmp_path):
    rows, jobs = undisturbed.rows, undisturbed.jobs
    one, two = Budget(1, "epochs"), Budget(2, "epochs")
    assert [job.pause_after for job in jobs].count(one) == 8
    assert [job.pause_after for job in jobs].count(two) == 4
    assert [job.pause_after for job in jobs].count(None) == 2
    check_against_trials_alone(one_cell, undisturbed.folder, rows, tmp_path / "alone")
    for row in rows:
        for trial in row.savings.trials:
            run = RunFolder(undisturbed.folder / "runs" / trial.name)
            assert (run.end_event() is None) == trial.stopped
            assert max(checkpoint_updates(run.checkpoints)) == 4 * trial.trained
            assert trial.score == best_score(run.path, EPOCHS)


def test_a_worker_killed_before_it_named_the_best_checkpoint(one_cell, run_here, tmp_path):
    rows, _ = run_here(one_cell, tmp_path)
    stopped = [trial.name for row in rows for trial in row.savings.trials if trial.stopped]
    expected = [contents(tmp_path / "runs" / name) for name in stopped]
    RunFolder(tmp_path / "runs" / stopped[0]).best.unlink()
    RunFolder(tmp_path / "runs" / stopped[1]).best.write_text("{}")
    again, jobs = run_here(one_cell, tmp_path)
    assert again == rows
    assert {job.trial.name for job in jobs} == set(stopped[:2])
    assert [contents(tmp_path / "runs" / name) for name in stopped] == expected


def test_an_interrupted_validation_leaves_the_comparison_at_a_rung_before(one_cell, tmp_path, monkeypatch):
    sweep, one = SweepSettings.model_validate(one_cell), Budget(1, "epochs")
    trial = make_trials(sweep, tmp_path)[0]
    prepare_trial_data(trial)
    train(trial.settings, tmp_path / "run", pause_after=one)
    expected = outcome_after(tmp_path / "run", trial.settings.training, one)
    assert expected is not None

    def interrupted(run, validate=loop.validate):
        signal.raise_signal(signal.SIGTERM)
        return validate(run)

    monkeypatch.setattr(loop, "validate", interrupted)
    with pytest.raises(Interrupted):
        train(trial.settings, tmp_path / "run", resume="auto")
    assert outcome_after(tmp_path / "run", trial.settings.training, one) == expected
    assert outcome_after(tmp_path / "run", trial.settings.training, Budget(2, "epochs")) is None


def test_a_cell_passes_all_rungs_before_the_next_one_begins(undisturbed):
    names = [job.trial.cell["language"] for job in undisturbed.jobs]
    assert names == ["w#w^R"] * 7 + ["Dyck"] * 7  # four trials, then two, then one


def test_the_table_states_the_training_of_each_trial_and_the_cost(halved, undisturbed, tmp_path):
    sweep, rows = undisturbed.folder, undisturbed.rows
    for row in rows:
        found = row.savings
        assert [(rung.after, rung.validation.count) for rung in found.rungs] == [(1, 4), (2, 2)]
        assert sorted((trial.trained, trial.stopped) for trial in found.trials) == [
            (1, True), (1, True), (2, True), (EPOCHS, False)]  # fmt: skip
        assert (found.trained, found.without_halving, found.share) == (8, 16, "50%")
        assert found.rungs[0].validation.mean == pytest.approx(
            sum(best_score(sweep / "runs" / trial.name, 1) for trial in found.trials) / 4
        )
        assert row.validation.count == 1
    value = {"cell": rows[0].cell, "value": 0.1}
    halved["published"] = [{"source": "Table 1", "values": [value], "settings": {"model.d_model": 4}}]
    (comparison,) = compare_with_published(SweepSettings.model_validate(halved), rows)
    assert (comparison.ours, comparison.trials) == (rows[0].best, 4)  # the best of four
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(halved))
    out = tmp_path / "kept.json"
    recipe = ["--recipe", str(tmp_path / "recipe.yaml"), "-o", str(out)]
    shown = invoke("report", sweep, *recipe)
    assert "2 of 8 trials have ended, 6 were stopped by successive halving" in shown.output
    assert "Successive halving: 16 epochs of training, 50% of about 32 without it" in shown.output
    kept = json.loads(out.read_text())
    assert [row["savings"]["trained"] for row in kept["rows"]] == [8, 8]
    assert kept["command"] == f"structattn sweep {tmp_path / 'recipe.yaml'} --output {sweep}"
    assert len(out.read_text().splitlines()) < 40  # an element of a list a line
    invoke("report", sweep, "-o", tmp_path / "page", catch_exceptions=False)
    page = (tmp_path / "page/index.html").read_text()
    assert "50% of about 32 without it" in page
    assert page.count(">stopped</td>") == 6


def test_trials_that_were_trained_in_full_give_the_same_table(one_cell, undisturbed, run_here, tmp_path):
    whole = {name: value for name, value in one_cell.items() if name != "halving"}
    run_here(whole, tmp_path / "whole")
    again, jobs = run_here(one_cell, tmp_path / "whole")
    assert (again, jobs) == (undisturbed.rows[1:], [])


def test_stopped_trials_are_stored_with_their_scores(halved, undisturbed, run_here, write_trials, tmp_path):
    stored, rows = Path(shutil.copy(undisturbed.stored, tmp_path)), undisturbed.rows
    trials = [trial for row in rows for trial in row.savings.trials]
    lines = {line["trial"]: line for line in map(json.loads, stored.read_text().splitlines())}
    assert lines.keys() == {trial.name for trial in trials}
    for trial in trials:
        content = lines[trial.name]
        assert content.get("stopped") == ({"count": trial.trained, "unit": "epochs"} if trial.stopped else None)
        assert (content["end"] is None) == trial.stopped
        assert [event["epoch"] for event in content["validations"]] == [*range(1, trial.trained + 1)]
    assert run_here(halved, tmp_path / "other", stored) == (rows, [])
    assert not list((tmp_path / "other/runs").iterdir())
    sweep = SweepSettings.model_validate(halved)
    assert read_sweep_results(sweep, tmp_path / "nowhere", stored).rows == rows
    missing = next(trial for trial in trials if trial.stopped and trial.trained == 2)
    write_trials(stored, [line for name, line in lines.items() if name != missing.name])
    again, jobs = run_here(halved, tmp_path / "other", stored)
    assert again == rows
    assert [(job.trial.name, str(job.pause_after)) for job in jobs] == [
        (missing.name, "1 epoch"), (missing.name, "2 epochs")]  # fmt: skip
    last = json.loads(stored.read_text().splitlines()[-1])
    assert (last["trial"], last["stopped"]["count"]) == (missing.name, 2)


def test_trials_that_have_not_started_are_not_stopped(halved, run_here, tmp_path):
    whole = {name: value for name, value in halved.items() if name != "halving"}
    run_here(whole | {"restarts": 1}, tmp_path)
    results = read_sweep_results(SweepSettings.model_validate(halved), tmp_path)
    assert results.counts == "2 of 8 trials have ended"
    for row in results.rows:
        assert [(trial.restart, trial.stopped) for trial in row.savings.trials] == [(0, False)]
        assert (row.savings.trained, row.savings.without_halving) == (EPOCHS, EPOCHS)


def test_halving_does_not_rename_trials(halved, tmp_path):
    names = [trial.name for trial in make_trials(SweepSettings.model_validate(halved), tmp_path)]
    del halved["halving"]
    assert [trial.name for trial in make_trials(SweepSettings.model_validate(halved), tmp_path)] == names


def test_a_trial_that_ended_before_a_rung_is_compared(one_cell, run_here, tmp_path):
    one_cell["base"]["training"] |= {"early_stopping_patience": 1, "validate_every": 1}
    one_cell["random"] = {"training.optimizer.learning_rate": {"low": 0.3, "high": 0.6}}
    rows, jobs = run_here(one_cell | {"halving": {"after": [2], "keep": 0.25}}, tmp_path / "sweep")
    ended = [RunFolder(job.run_dir).end_event() for job in jobs if job.pause_after]
    assert any(event is not None and event["epoch"] < 2 for event in ended)
    assert [len(row.savings.trials) for row in rows] == [4]


def test_a_rung_without_a_validation_is_reported(one_cell, run_here, tmp_path):
    one_cell["base"]["training"]["validate_every"] = 6
    with pytest.raises(StructattnError, match="4 of 4 trials failed") as error:
        run_here(one_cell, tmp_path / "sweep")
    assert "no validation within 1 epoch, by which trials are compared; expected a smaller" in error.value.__notes__[0]
    with pytest.raises(StructattnError, match="4 of 4 trials failed"):  # it does not count as trained for the rung
        run_here(one_cell, tmp_path / "sweep")


def test_a_cell_without_trials_has_no_row(halved, run_here, tmp_path):
    halved["where"] = [{"match": {"language": "w#w^R"}, "restarts": 0}]
    rows, jobs = run_here(halved, tmp_path / "sweep")
    assert [row.cell for row in rows] == [{"language": "Dyck"}]
    assert {job.trial.cell["language"] for job in jobs} == {"Dyck"}


class StoredOutcomes:
    """A sweep's folder of trials with given outcomes."""

    path = Path("sweep")

    def __init__(self, outcomes):
        self._outcomes = outcomes

    def outcome_after(self, trial, budget):
        return self._outcomes.get(trial.restart)


def validated(*scores):
    """Return the outcome of a run with a (cross-entropy, BLEU) after each epoch."""
    events = [
        {"update": 10 * epoch, "epoch": epoch, "cross_entropy": score, "cross_entropy_difference": None}
        | ({} if bleu is None else {"bleu": bleu})
        for epoch, (score, bleu) in enumerate(scores, start=1)
    ]
    return Outcome(None, events, {}, {}, Budget(len(scores), "epochs"))


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ([validated((2.0, None)), validated((1.0, None)), validated((3.0, None))], [[0, 1], [1]]),
        ([validated((2.0, None), (0.5, None)), validated((1.0, None)), validated((3.0, None))], [[0, 1], [0]]),
        ([validated((1.0, None))] * 3, [[0, 1], [0]]),  # ties
        ([validated((2.0, 30.0)), validated((1.0, 10.0)), validated((3.0, 20.0))], [[0, 2], [0]]),
        ([None, validated((9.0, None)), None], [[1], [1]]),  # failed
        ([None, None, None], [[], []]),
    ],
)
def test_trials_are_compared_by_their_own_criterion(halved, outcomes, kept):
    halved |= {"restarts": 3}
    sweep = SweepSettings.model_validate(halved)
    folder = StoredOutcomes(dict(enumerate(outcomes)))
    bracket = make_bracket(sweep, folder, cells_of(sweep)[0], lambda trial, budget: budget is None)
    stopped = {trial.restart for trial in bracket.rungs[0].stopped}
    assert [[r for r in range(3) if r not in stopped], [trial.restart for trial in bracket.going_on]] == kept
    assert (bracket.budget, bracket.pending) == (None, bracket.going_on)


@pytest.mark.parametrize(("bleu", "best"), [((None, None), 1), ((30.0, 10.0), 0)])
def test_the_best_trial_of_a_cell_is_that_of_the_same_criterion(halved, bleu, best):
    sweep = SweepSettings.model_validate(halved)
    trials = trials_of(sweep, Path("sweep"), cells_of(sweep)[0])[:2]
    outcomes = [validated((score, of_trial)) for score, of_trial in zip((2.0, 1.0), bleu, strict=True)]
    results = [
        trial_result(trial, replace(outcome, end={"best_update": 10}))
        for trial, outcome in zip(trials, outcomes, strict=True)
    ]
    (chosen,) = select_best(results)
    assert (chosen.trial, chosen.score) == (trials[best], [2.0, 1.0][best])


def test_a_cell_waits_for_all_its_trials(halved):
    sweep = SweepSettings.model_validate(halved)
    folder = StoredOutcomes({restart: validated((float(restart), None)) for restart in range(3)})
    bracket = make_bracket(sweep, folder, cells_of(sweep)[0], lambda trial, budget: trial.restart == 3)
    assert (bracket.rungs, bracket.budget) == ([], Budget(1, "epochs"))
    assert [trial.restart for trial in bracket.pending] == [3]


@pytest.mark.parametrize(
    ("count", "keep", "at_least", "expected"),
    [(10, 0.4, 3, 4), (4, 0.4, 3, 3), (3, 0.4, 3, 3), (2, 0.4, 3, 2), (100, 0.07, 1, 7), (5, 0.5, 1, 3), (7, 1, 1, 7)],
)
def test_the_number_that_goes_on_is_rounded_up(count, keep, at_least, expected):
    assert Halving(after=(1,), keep=keep, at_least=at_least).survivors(count) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": [2, 1]}, "after: 1 follows 2; expected ascending numbers of epochs"),
        ({"after": [1, 1], "unit": "updates"}, "after: 1 follows 1; expected ascending numbers of updates"),
        ({"after": []}, "halving.after: expected at least one item"),
        ({"after": [0, 1]}, "halving.after.0: expected at least 1"),
        ({"keep": 0}, "halving.keep: expected more than 0, got 0"),
        ({"keep": 1.5}, "halving.keep: expected at most 1"),
        ({"at_least": 0}, "halving.at_least: expected at least 1"),
        ({"unit": "steps"}, "halving.unit: .*'epochs' or 'updates'"),
        ({"after": [1, 9]}, rf"trial w#w\^R: halving.after: 9 epochs are more than training.max_epochs={EPOCHS}"),
    ],
)
def test_invalid_rungs_are_refused(halved, tmp_path, change, message):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(halved | {"halving": HALVING | change}, sort_keys=False))
    with pytest.raises(SettingsError, match=message):
        make_trials(load_sweep(tmp_path / "sweep.yaml"), tmp_path)


def test_rungs_before_the_first_validation_are_refused(halved, tmp_path):
    halved["base"]["training"] |= {"validate_every": 5}
    sweep = SweepSettings.model_validate(halved | {"halving": {"after": [4], "unit": "updates"}})
    with pytest.raises(SettingsError, match=r"4 updates are before the first validation; expected at least .*every=5"):
        make_trials(sweep, tmp_path)


def test_a_mean_over_trials_is_refused(halved):
    claim = {"description": "c", "statistic": "mean", "at_most": 1}
    with pytest.raises(ValueError, match="mean of validation needs all trials, but `halving` stops some of them early"):
        SweepSettings.model_validate(halved | {"claims": [claim]})


def kill_repeatedly(tree, folder, kills, seconds):
    """Run a sweep in a process that is killed ``kills`` times, after up to ``seconds``; return how often it was."""
    settings = folder.with_suffix(".yaml")
    settings.write_text(yaml.safe_dump(tree, sort_keys=False))
    words = [Path(__file__).with_name("killed_sweep.py"), settings, folder, kills, seconds]
    program = [sys.executable, *map(str, words)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("cells", "restarts", "going_on", "kills"),
    [(1, 4, (2, 1), 4), pytest.param(5, 10, (5, 3), 20, marks=pytest.mark.slow)],
)
def test_a_killed_sweep_has_the_survivors_of_an_undisturbed_one(
    halved, run_here, tmp_path, cells, restarts, going_on, kills
):
    halved["grid"] = {"d_ff": {str(size): {"model.d_ff": size} for size in range(4, 4 + cells)}}
    halved["base"]["prepare"]["language"] = "dyck"
    halved["restarts"] = restarts
    began = time.monotonic()
    rows, _ = run_here(halved, tmp_path / "quiet")
    duration = time.monotonic() - began
    assert kill_repeatedly(halved, tmp_path / "killed", kills, 1.5 * duration / kills) > kills / 2
    again, jobs = run_here(halved, tmp_path / "killed")
    assert (again, jobs) == (rows, [])
    check_against_trials_alone(halved, tmp_path / "killed", rows, tmp_path / "alone", going_on)


@pytest.fixture
def jobs_of_submitit(monkeypatch):
    """In this process, they leave log files open and a signal handled."""
    before, debug = signal.getsignal(signal.SIGUSR2), pytest.importorskip("submitit.local.debug")
    quiet = SimpleNamespace(**vars(logging) | {"FileHandler": lambda path: logging.NullHandler()})
    monkeypatch.setattr(debug, "logging", quiet)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("jobs_of_submitit")
@pytest.mark.quick("debug")
@pytest.mark.parametrize("name", ["debug", "local", "ray"])
def test_engines_for_clusters_halve_alike(halved, run_here, tmp_path, name):
    """In this process as submitit calls the job; in processes of submitit; as tasks of Ray."""
    pytest.importorskip("ray" if name == "ray" else "submitit")
    halved |= {"grid": {}, "restarts": 2, "halving": {"after": [1]}}
    halved["base"]["prepare"]["language"] = "dyck"
    rows, _ = run_here(halved, tmp_path / "here")

    def open_engine():
        return RayEngine(2) if name == "ray" else SlurmEngine(2, tmp_path / "logs", cluster=name)

    sweep = SweepSettings.model_validate(halved)
    assert run_sweep(sweep, tmp_path / name, open_engine, lambda status: None) == rows
    for trial in rows[0].savings.trials:
        assert contents(tmp_path / name / "runs" / trial.name) == contents(tmp_path / "here/runs" / trial.name)
