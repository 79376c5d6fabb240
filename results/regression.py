"""Differences between models whose trials have random rates and batch sizes, with these as covariates."""

from typing import Any

import numpy as np
from stored import Stored

from structattn.metrics.statistics import critical_value

RATE, BATCH = "training.optimizer.learning_rate", "training.batches.max_tokens"


def covariates(results: Stored) -> str:
    """Return a paragraph on the differences from the first model, or an empty string where nothing was drawn."""
    if not all({RATE, BATCH} <= set(trial["sampled"]) for trial in results.trials) or not results.trials:
        return ""
    groups = dict.fromkeys(trial["cell"]["data"] for trial in results.trials)
    lines = []
    for curved in (False, True):
        for data in groups:
            trials = [trial for trial in results.trials if trial["cell"]["data"] == data]
            lines.append(f"- {data}, {_form(curved)}: {'; '.join(_differences(trials, curved))}.\n")
    capped = sum(trial["end"]["reason"] == "epochs" for trial in results.trials)
    return (
        "\nThe models of a corpus differ in the rates and batch sizes that were drawn. Differences in the best\n"
        "validation cross-entropy by least squares, with these as covariates, ±95 %; the form of the covariates\n"
        "decides:\n\n"
        f"{''.join(lines)}\n{capped} of {len(results.trials)} trials ended at the cap of epochs.\n"
    )


def _form(curved: bool) -> str:
    return "log rate, its square and log batch" if curved else "log rate and log batch"


def _differences(trials: list[dict[str, Any]], curved: bool) -> list[str]:
    models = list(dict.fromkeys(trial["cell"]["model"] for trial in trials))
    rate, batch = (np.log([trial["sampled"][name] for trial in trials]) for name in (RATE, BATCH))
    rate -= rate.mean()
    columns = [np.ones(len(trials)), *([trial["cell"]["model"] == model for trial in trials] for model in models[1:])]
    design = np.array([*columns, rate, batch, *([rate**2] if curved else [])], dtype=float).T
    scores = np.array([trial["end"]["best_cross_entropy"] for trial in trials])
    fitted = np.linalg.lstsq(design, scores, rcond=None)[0]
    freedom = len(trials) - design.shape[1]
    variance = float(((scores - design @ fitted) ** 2).sum()) / freedom
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    return [
        f"{model} {fitted[place]:+.3f} ± {critical_value(freedom + 1) * errors[place]:.3f} "
        f"(t {fitted[place] / errors[place]:+.1f})"
        for place, model in enumerate(models[1:], start=1)
    ]
