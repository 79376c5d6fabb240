import itertools

import pytest

from structattn.settings.run import RunSettings
from structattn.support.errors import DataError, SettingsError
from structattn.tasks.registry import TASKS

STREAM = {"kind": "stream", "sequence_length": 4, "batch_size": 2}
LINES = [3, 5, 3, 2, 4, 5, 4, 2, 3, 4, 5, 4, 3, 2, 5, 2, 4, 4, 5, 4, 4, 2]  # the train split, an <eos> after each line


def build(prepared, **training):
    tree = {"task": "language_modeling", "data": prepared.path, "training": training}
    return TASKS["language_modeling"].build(prepared, RunSettings.model_validate(tree))


def test_sentences_are_scored_one_by_one(prepared, table_model):
    task = build(prepared("sentences"), batches={"kind": "tokens", "max_tokens": 8})
    scores = task.validate(table_model, lambda: None)
    nats = sum(map(table_model.nats, ([3, 5, 3], [4, 4, 5, 4, 4], [5], [3, 5, 3])))
    assert scores.cross_entropy == pytest.approx(nats / 16, rel=1e-6)
    assert scores.lower_bound is scores.cross_entropy_difference is None


def test_each_target_of_a_stream_counts_once_an_epoch(prepared):
    task = build(prepared("stream"), batches=STREAM)
    windows = {}
    for indices in task.training_batches(0):
        batch = task.batch(indices)
        for row, window in enumerate(indices):
            windows[int(window)] = batch.targets[row, : batch.lengths[row]].tolist()
    assert [target for window in sorted(windows) for target in windows[window]] == LINES


def test_a_stream_is_scored_over_line_ends(prepared, table_model):
    scores = build(prepared("stream"), batches=STREAM).validate(table_model, lambda: None)
    stream = [2, 3, 5, 3, 2, 4, 4, 5, 4, 4, 2, 5, 2, 3, 5, 3, 2]
    nats = -sum(table_model.table[a, b - 2].item() for a, b in itertools.pairwise(stream))
    assert scores.num_tokens == 16
    assert scores.cross_entropy == pytest.approx(nats / 16, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "batches", "expected"),
    [
        ("stream", {"kind": "sequences"}, "'stream'"),
        ("stream", {"kind": "tokens"}, "'stream'"),
        ("sentences", STREAM, "'sequences' or 'tokens'"),
    ],
)
def test_batches_must_suit_the_text(prepared, kind, batches, expected):
    with pytest.raises(
        SettingsError, match=rf"training\.batches\.kind: .* whose kind is '{kind}'; expected {expected}"
    ):
        build(prepared(kind), batches=batches)


def test_strings_of_a_formal_language_are_no_text(prepared):
    with pytest.raises(DataError, match="kind 'formal_language'; the task language_modeling needs 'sentences' or"):
        build(prepared())
