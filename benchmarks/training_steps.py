"""Whole training steps at the paper's sizes, on one batch of ten strings of one length."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.progress import track

from structattn.runs.folder import RunFolder
from structattn.settings.run import RunSettings, resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.loop import Update, training_step

MODELS = {
    "Tf": {"d_model": 32, "d_ff": 64, "layers": "5"},
    "Tf+Sup": {"d_model": 32, "d_ff": 64, "layers": "2.superposition-32.2"},
    "Tf+Nd 2-3-5": {"d_model": 28, "d_ff": 56, "layers": "2.nondeterministic-2-3-5.2"},
    "Tf+Nd 3-3-5": {"d_model": 28, "d_ff": 56, "layers": "2.nondeterministic-3-3-5.2"},
    "LSTM": {"kind": "lstm", "hidden_size": 100},
    "LSTM+Sup": {"kind": "lstm", "hidden_size": 93, "stack": "superposition-10"},
    "LSTM+Nd 2-3-5": {"kind": "lstm", "hidden_size": 64, "stack": "nondeterministic-2-3-5"},
    "LSTM+Nd 3-3-5": {"kind": "lstm", "hidden_size": 64, "stack": "nondeterministic-3-3-5"},
}


TASK_TRANSFORMER = {
    "kind": "masked",
    "d_model": 64,
    "d_ff": 256,
    "num_heads": 8,
    "positions": "none",
    "norm": "post",
    "bias": False,
    "attention_dropout": 0,
    "hidden_dropout": 0,
}
POINTER_MODELS = {
    "MLM": {**TASK_TRANSFORMER, "layers": 5},
    "MLM+stacks": {**TASK_TRANSFORMER, "layers": [{"stack": {"attention": "stack_pointer", "bottom": "learned"}}] * 5},
}


def pointer_step(model: str, length: int, folder: Path) -> Callable[[], object]:
    """Return a training step of the task transformer of Li et al. (2024) on 32 strings to reverse."""
    data = folder / f"reversals-{length}"
    if not data.exists():
        prepare_transduction(data, "reverse-string", sizes=TransductionSizes((length, length), (length, length), 1, 1))
    training = {"batches": {"kind": "sequences", "batch_size": 32}, "loss": "token_mean"}
    tree = {"task": "masked_transduction", "data": str(data), "model": POINTER_MODELS[model], "training": training}
    return _step(folder / model, resolve_settings(tree), np.arange(32))


def step_of_model(model: str, length: int, folder: Path, accelerated: bool = True) -> Callable[[], object]:
    """Return a training step of the named model on ten strings of ww^R with ``length`` symbols.

    Args:
        model: one of ``MODELS``.
        length: of the strings.
        folder: for the data and runs.
        accelerated: whether kernels compute several modules at once, as in ``structattn train``.
    """
    settings = settings_of_model(model, length, folder)
    return _step(folder / f"{model}{'' if accelerated else ', modules'}", settings, np.arange(10), accelerated)


def settings_of_model(model: str, length: int, folder: Path) -> RunSettings:
    """Return the settings of the named model for ten strings of ww^R with ``length`` symbols, which are made."""
    data = folder / f"strings-{length}"
    if not data.exists():
        sizes = FormalLanguageSizes(10, 10, 1, (length, length), (length, length))
        prepare_formal_language(data, "unmarked-reversal", seed=1, sizes=sizes)
    return resolve_settings({"task": "formal_language", "data": str(data), "model": MODELS[model], "seed": 1})


def _step(folder: Path, settings: RunSettings, examples: np.ndarray, accelerated: bool = True) -> Callable[[], object]:
    plan = make_plan(RunFolder(folder), settings)
    learner = initial_learner(plan)
    if not accelerated:
        learner = replace(learner, accelerated=learner.model)
    update = Update(1, [plan.task.batch(examples)], 0.001, settings.training.max_grad_norm)
    return lambda: training_step(learner, plan.task, update)


def interleaved(works: dict[str, Callable[[], object]], rounds: int, what: str) -> dict[str, np.ndarray]:
    """Return the processor time of each work in each round, after a round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in track(range(rounds + 1), what):
        for name, work in works.items():
            start = time.process_time()
            work()
            seconds[name].append(time.process_time() - start)
    return {name: np.array(values[1:]) for name, values in seconds.items()}
