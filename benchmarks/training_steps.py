"""A whole training step in the trainer at the paper's sizes, on one batch of ten strings of one length."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language
from structattn.settings.run import resolve_settings
from structattn.tasks.registry import TASKS
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.run_folder import RunFolder
from structattn.training.step import Update, take_step

MODELS = {
    "Tf": {"width": 32, "feedforward_width": 64, "layers": "5"},
    "Tf+Sup": {"width": 32, "feedforward_width": 64, "layers": "2.superposition-32.2"},
    "Tf+Nd 2-3-5": {"width": 28, "feedforward_width": 56, "layers": "2.nondeterministic-2-3-5.2"},
    "Tf+Nd 3-3-5": {"width": 28, "feedforward_width": 56, "layers": "2.nondeterministic-3-3-5.2"},
    "LSTM": {"kind": "lstm", "units": 100},
    "LSTM+Sup": {"kind": "lstm", "units": 93, "stack": "superposition-10"},
    "LSTM+Nd 2-3-5": {"kind": "lstm", "units": 64, "stack": "nondeterministic-2-3-5"},
    "LSTM+Nd 3-3-5": {"kind": "lstm", "units": 64, "stack": "nondeterministic-3-3-5"},
}


def training_step(model: str, length: int, folder: Path) -> Callable[[], object]:
    """A function that takes one step of the named model on ten strings of ``length`` symbols of ww^R."""
    data = folder / f"strings-{length}"
    if not data.exists():
        sizes = FormalLanguageSizes(10, 10, 1, (length, length), (length, length))
        prepare_formal_language(data, "unmarked-reversal", seed=1, sizes=sizes)
    settings = resolve_settings({"task": "formal_language", "data": str(data), "model": MODELS[model], "seed": 1})
    plan = make_plan(RunFolder(folder / model), settings)
    learner = initial_learner(plan)
    task = TASKS[settings.task].build(plan.prepared, settings.training, settings.seed)
    update = Update(1, [task.batch(np.arange(10))], 0.001, settings.training.clip_norm)
    return lambda: take_step(learner, task, update)
