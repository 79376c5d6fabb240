"""A small sweep of fast trials."""

import copy
from dataclasses import asdict

import pytest

from structattn.runs.folder import RunFolder
from structattn.runs.logs import EventLog
from structattn.settings.sweep import SweepSettings

TREE = {
    "base": {
        "task": "formal_language",
        "prepare": {"train": 40, "valid": 10, "test_per_length": 1, "train_lengths": [2, 6], "test_lengths": [2, 8]},
        "model": {"d_model": 4, "d_ff": 4, "num_heads": 1, "layers": "1"},
        "training": {"max_updates": 12, "checkpoint_every": 2},
    },
    "grid": {
        "language": {"w#w^R": {"prepare.language": "marked-reversal"}, "Dyck": {"prepare.language": "dyck"}},
        "model": {"Tf": {}, "Tf+Sup": {"model.layers": "superposition-2"}},
    },
    "random": {"training.optimizer.learning_rate": {"low": 0.0005, "high": 0.01}},
    "restarts": 2,
}


@pytest.fixture
def tree():
    return copy.deepcopy(TREE)


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
