"""Every field of the training state matters: changing one changes the resumed run or is rejected."""

import base64
import dataclasses
import shutil
from dataclasses import replace

import pytest
import torch

from structattn.runs.checkpoint import Progress, ScheduleState, TrainingState
from structattn.runs.folder import RunFolder, begin_run
from structattn.runs.metadata import run_card
from structattn.settings.run import resolve_settings
from structattn.support.errors import StructattnError
from structattn.training.assembly import initial_learner, make_plan, restored_run
from structattn.training.loop import perform_update, save, validate
from structattn.training.progress import validation_is_due
from structattn.training.run import StopFlag, state_of
from structattn.training.run_training import train


def other_generator(text):
    state = torch.get_rng_state()
    torch.manual_seed(99)
    other = torch.get_rng_state()
    torch.set_rng_state(state)
    return {"cpu": base64.b64encode(other.numpy().tobytes()).decode()}


def nudged(tensors):
    name = sorted(tensors)[0]
    return dict(tensors) | {name: tensors[name] + 0.001}


CHANGES = {
    "weights": nudged,
    "optimizer": nudged,
    "generators": other_generator,
    "event_log": lambda prefix: replace(prefix, length=prefix.length - 1),
    "update": lambda update: update + 1,
    "epoch": lambda epoch: epoch + 1,
    "position": lambda position: position + 1,
    "last_validation": lambda update: 2 * update,
    "best_score": lambda score: 1e9,
    "best_update": lambda update: update + 1,
    "examples_since_validation": lambda count: count // 2,
    "bad_validations": lambda count: count + 1,
    "learning_rate": lambda rate: rate * 1.001,
    "best": lambda perplexity: 1e9,
    "bad": lambda count: count + 1,
}


def fields():
    for kind, path in ((TrainingState, ()), (Progress, ("progress",)), (ScheduleState, ("progress", "schedule"))):
        for field in dataclasses.fields(kind):
            if field.name not in {"progress", "schedule"}:
                yield (*path, field.name)


def changed(value, path, change):
    inner = getattr(value, path[0])
    return replace(value, **{path[0]: changed(inner, path[1:], change) if len(path) > 1 else change(inner)})


@pytest.fixture(scope="module")
def base(tmp_path_factory, prepared_folder):
    """A run stopped before the validation of its second epoch, with a best score that is never reached again."""
    settings = resolve_settings(
        {
            "task": "formal_language",
            "data": str(prepared_folder),
            "model": {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "1", "dropout": 0.2},
            "training": {
                "max_epochs": 9,
                "early_stopping_patience": 2,
                "validate_every": {"examples": 120},  # an epoch
                "schedule": {"kind": "plateau", "patience": 1},
                "num_threads": 1,
            },
        }
    )
    folder = RunFolder(tmp_path_factory.mktemp("base") / "run")
    folder.path.mkdir()
    plan = make_plan(folder, settings)
    learner = initial_learner(plan)
    begin_run(
        folder,
        settings,
        run_card(settings, plan.prepared.kind, plan.prepared.vocabulary.size, plan.identity, 0, learner.device),
    )
    with restored_run(plan, learner, StopFlag()) as run:
        while run.progress.epoch < 2:
            if validation_is_due(run.progress, run.settings):
                validate(run)
                save(run)
            perform_update(run)
        schedule = replace(run.progress.schedule, best=1.0)
        run.progress = replace(run.progress, best_score=0.0, schedule=schedule)
        save(run)
    return settings, folder.path


def finished(settings, source, target, outcome, path=None):
    """Return the outcome of the run, resumed from a copy in which one field is changed."""
    shutil.copytree(source, target)
    folder = RunFolder(target)
    plan = make_plan(folder, settings)
    if path:
        with restored_run(plan, initial_learner(plan), StopFlag()) as run:
            state = state_of(run)
            store = run.store
        shutil.rmtree(folder.checkpoints / str(state.progress.update))
        store.save(changed(state, path, CHANGES[path[-1]]))
    train(settings, target, resume=True)
    return outcome(target)


@pytest.fixture(scope="module")
def undisturbed(base, outcome):
    return finished(*base, base[1].with_name("undisturbed"), outcome)


def test_resumed_run_has_further_validations(base, undisturbed):
    events = base[1].with_name("undisturbed").joinpath("events.jsonl").read_text().splitlines()
    assert sum('"validation"' in event for event in events) == 1 + 2
    assert '"early_stopping"' in events[-1]


@pytest.mark.parametrize("path", list(fields()), ids=".".join)
def test_changing_a_field_changes_the_run(base, undisturbed, tmp_path, outcome, path):
    try:
        disturbed = finished(*base, tmp_path / "disturbed", outcome, path)
    except StructattnError:
        return
    assert disturbed != undisturbed
