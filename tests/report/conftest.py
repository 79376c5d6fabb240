"""Run folders as written by training, evaluation and analysis, with artificial numbers."""

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from structattn.explorer.recording import RecordedExample, Recording
from structattn.explorer.recording_files import write_recording
from structattn.loading.records import BOTTOM, Record
from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.environment import name_of
from structattn.support.json_files import write_json

BOUND = 0.3843
PALINDROME = ["<bos>", *"0110100110010110", "#", *"0110100110010110"]


def _by_length(low: int, high: int, excess: float) -> list[dict[str, Any]]:
    rows = []
    for length in range(low, high + 1, 2):
        bound = (length // 2) * math.log(2) / (length + 1)
        difference = math.log(20) / (length + 1) + excess * (1 + max(0, length - 80) / 4)
        rows.append({"length": length, "num_sequences": 100, "cross_entropy": bound + difference, "lower_bound": bound,
                     "cross_entropy_difference": difference})  # fmt: skip
    return rows


def _score(split: str, excess: float, **changes: Any) -> dict[str, Any]:
    entropy = BOUND + excess
    return {
        "split": split, "update": 3000, "num_sequences": 1000, "num_tokens": 61000, "cross_entropy": entropy,
        "perplexity": math.exp(entropy), "lower_bound": BOUND, "cross_entropy_difference": excess,
        "by_length": _by_length(41, 79 if split == "valid" else 99, excess), "parameters": 33273,
        "model": "nondeterministic stack 2-3-5 in layer 3 of 5, d 28", "baselines": None, "prepared_digest": "ab" * 32,
        "data": {"kind": "formal_language", "name": "marked", "language": "marked-reversal", "variant": "faithful",
                 "train_lengths": [40, 80], "train_number_of_lengths": 20}, **changes,
    }  # fmt: skip


def _events(excess: float, epochs: int, per_epoch: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for update in range(1, epochs * per_epoch + 1):
        epoch = (update - 1) // per_epoch + 1
        loss = BOUND + excess + 1.1 * math.exp(-update / 40) + 0.02 * math.sin(update * 1.7)
        events.append({"event": "train", "update": update, "epoch": epoch, "loss": loss,
                       "tokens": 610, "learning_rate": 0.003})  # fmt: skip
        if update % per_epoch == 0:
            entropy = BOUND + excess + 0.3 * math.exp(-epoch)
            events.append({"event": "validation", "update": update, "epoch": epoch, "cross_entropy": entropy,
                           "perplexity": math.exp(entropy), "lower_bound": BOUND,
                           "cross_entropy_difference": entropy - BOUND, "improved": True})  # fmt: skip
    return [*events, {"event": "end", "reason": "max_epochs"}]


def _stack_record(tokens: tuple[str, ...], mechanism: str) -> Record:
    """Return the record of a stack that pushes before the marker and pops after it, with some uncertainty."""
    time, middle = len(tokens), len(tokens) // 2
    actions = [[0.9, 0.07, 0.03] if t < middle else [0.02, 0.96, 0.02] if t == middle else [0.04, 0.06, 0.9]
               for t in range(time)]  # fmt: skip
    weights = []
    for t in range(time):
        top = t if t < middle else max(0, 2 * middle - t)
        weights.append([0.85 if s == top + 1 else 0.15 if s == top else 0.0 for s in range(time + 1)])
    best = np.array([[int(np.argmax(row)), 0, 1] for row in actions]) if mechanism == "nondeterministic" else None
    bottom_first = (BOTTOM, *tokens)
    return Record(
        tokens,
        2,
        "attention",
        None,
        mechanism,
        np.array(weights),
        bottom_first,
        actions=np.array(actions),
        best_run=best,
    )


def _softmax_record(tokens: tuple[str, ...], layer: int, head: int) -> Record:
    weights = []
    for t in range(len(tokens)):
        raw = [math.exp(-abs(t - s - head) / (1 + layer)) if s <= t else 0.0 for s in range(len(tokens))]
        weights.append([value / sum(raw) for value in raw])
    return Record(tokens, layer, "attention", head, "softmax", np.array(weights), tokens)


def _recorded(tokens, records, source=None, split="test", example=0):
    none = tuple(None for _ in tokens)
    surprisal = np.full(len(tokens), np.nan)
    return RecordedExample(tuple(tokens), source, none, surprisal, tuple(records), split, example)


@pytest.fixture(scope="session")
def write_examples():
    """write_examples(folder, *examples, name="test") writes a recording to the folder of a run.

    An example is (tokens, records), or (tokens, records, source).
    """

    def write(folder, *examples, name="test"):
        (folder / "records").mkdir(exist_ok=True)
        recorded = tuple(_recorded(*each, example=number) for number, each in enumerate(examples))
        write_recording(folder / "records" / f"{name}.json", Recording({"name": name_of(folder)}, recorded))

    return write


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, path.parent.name, content)


@pytest.fixture(scope="session")
def write_run(write_examples):
    """write_run(parent, name, ...) writes a run folder and returns its path."""

    def make(parent, name="nd", excess=0.0123, tokens=PALINDROME, mechanism="nondeterministic", epochs=4, per_epoch=100,
             softmax_layers=(0, 1), task="formal_language", **changes):  # fmt: skip
        folder = parent / "runs" / name
        folder.mkdir(parents=True)
        settings = {"task": task, "data": "data/marked", "model": {"d_model": 28}, "seed": 1}
        RunFolder(folder).write_settings(resolve_settings(settings))
        card = {"format_version": 1, "version": "0.1.0", "task": "formal_language", "seed": 1, "parameters": 33273,
                "vocabulary_size": 6, "settings_digest": "s", "environment": {}, "result": None,
                "data": {"path": "data/marked", "kind": "formal_language", "digest": "d"},
                "hardware": {"processor": "x", "threads": 2}, "command": ["structattn", "train"]}  # fmt: skip
        RunFolder(folder).write_card(card)
        lines = [json.dumps(event) + "\n" for event in _events(excess, epochs, per_epoch)]
        (folder / "events.jsonl").write_text("".join(lines))
        for split, factor in (("valid", 1.0), ("test", 1.6)):
            _write_json(folder / "scores" / f"{split}.json", _score(split, excess * factor, **changes))
        tokens = tuple(tokens)
        heads = [_softmax_record(tokens, layer, head) for layer in softmax_layers for head in range(4)]
        write_examples(folder, (tokens, [_stack_record(tokens, mechanism), *heads]))
        return folder

    return make


@pytest.fixture
def make_run(write_run, tmp_path):
    """make_run(name, ...) writes a run folder and returns its path."""
    return functools.partial(write_run, tmp_path)
