import json
import math

import numpy as np
import pytest

from structattn.settings.run import RunSettings
from structattn.settings.training import CurriculumStage, SequenceBatches, StreamBatches, TokenBatches
from structattn.support.errors import DataError, SettingsError
from structattn.tasks.language_modeling.batches import split_examples
from structattn.tasks.registry import TASKS
from structattn.text.folders.prepared import open_prepared

VALID = [[3, 5, 3], [4, 4, 5, 4, 4], [5], [3, 5, 3]]
SYMBOLS_IN_VALID = 4 + 6 + 2 + 4


def build(prepared, **training):
    tree = {"task": "formal_language", "data": prepared.path, "training": training}
    return TASKS["formal_language"].build(prepared, RunSettings.model_validate(tree))


def test_the_lower_bound_is_that_of_the_validation_split(prepared, table_model):
    scores = build(prepared()).validate(table_model, lambda: None)
    assert scores.lower_bound == pytest.approx((4 * math.log(2) + 4 * math.log(3)) / SYMBOLS_IN_VALID)


def test_the_true_distribution_reaches_the_bound(prepared, table_model):
    """Where the exact probabilities are the model's own: p(w) = p(w | length) / 3 for three lengths."""
    given_length = [math.log(3) - table_model.nats(string) for string in VALID]
    task = build(prepared(valid_log_probabilities=given_length))
    scores = task.validate(table_model, lambda: None)
    assert (scores.num_sequences, scores.num_tokens) == (4, SYMBOLS_IN_VALID)
    assert scores.cross_entropy_difference == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("batches", [SequenceBatches(batch_size=2), TokenBatches(max_tokens=9)])
def test_every_epoch_has_every_string_once_in_an_order_of_its_own(prepared, batches):
    task = build(prepared(), batches=batches)
    for epoch in range(4):
        assert sorted(np.concatenate(task.training_batches(epoch))) == list(range(5))
    orders = {tuple(tuple(batch) for batch in task.training_batches(epoch)) for epoch in range(4)}
    assert len(orders) > 1


@pytest.mark.parametrize("batches", [SequenceBatches(batch_size=2), TokenBatches(max_tokens=9)])
def test_a_curriculum_begins_with_short_strings(prepared, batches):
    task = build(prepared(), batches=batches, curriculum=[{"max_length": 1}, {"max_length": 3, "epochs": 2}])
    drawn = [sorted(np.concatenate(task.training_batches(epoch))) for epoch in range(5)]
    assert drawn == [[3], [0, 1, 3], [0, 1, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]


def test_a_curriculum_needs_short_strings(prepared):
    with pytest.raises(DataError, match=r"train: the shortest sequence has 1 tokens; .* expected some of at most 0"):
        split_examples(
            prepared(), "train", SequenceBatches(), curriculum=[CurriculumStage.model_construct(max_length=0)]
        )


@pytest.mark.parametrize("lengths", [(3, 3), (3, 1)])
def test_stages_of_a_curriculum_get_longer(prepared, lengths):
    with pytest.raises(ValueError, match=r"expected increasing values of max_length, got \[3, "):
        build(prepared(), curriculum=[{"max_length": length} for length in lengths])


def test_a_curriculum_needs_sentences(prepared):
    stream = StreamBatches(kind="stream")
    with pytest.raises(SettingsError, match=r"training\.curriculum: windows of a stream have one length"):
        split_examples(prepared("stream"), "train", stream, curriculum=[CurriculumStage(max_length=3)])


def test_the_order_depends_on_the_seed(prepared):
    folder = prepared()
    tree = {"task": "formal_language", "data": folder.path, "training": {"batches": {"batch_size": 1}}}
    settings = [RunSettings.model_validate(tree | {"seed": seed}) for seed in range(8)]
    orders = {
        tuple(int(batch[0]) for batch in TASKS["formal_language"].build(folder, each).training_batches(0))
        for each in settings
    }
    assert len(orders) > 3


def test_strings_of_a_batch_have_one_length_and_no_padding(prepared):
    task = build(prepared())
    for indices in task.training_batches(0):
        batch = task.batch(indices)
        assert batch.lengths.tolist() == [batch.inputs.shape[1]] * len(indices)


def test_data_of_another_kind_are_refused(prepared):
    with pytest.raises(DataError, match="kind 'sentences'; the task formal_language needs 'formal_language'"):
        build(prepared("sentences"))


def test_strings_are_not_joined_to_a_stream(prepared):
    with pytest.raises(SettingsError, match=r"training\.batches\.kind: 'stream' would join strings"):
        build(prepared(), batches=StreamBatches(kind="stream"))


def test_data_without_exact_probabilities_are_refused(prepared):
    with pytest.raises(DataError, match="split 'valid' lacks its exact probabilities"):
        build(prepared(exact=False))


@pytest.mark.parametrize("numbers", [5, {"valid": 0}, {"valid": "3"}, {}])
def test_data_without_the_number_of_lengths_are_refused(prepared, numbers):
    path = prepared().path
    header = json.loads((path / "header.json").read_text())
    header["extra"]["number_of_lengths"] = numbers
    (path / "header.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match=r"split 'valid' lacks .* or its number of lengths"):
        build(open_prepared(path))


def test_an_empty_split_is_refused_by_name(prepared):
    with pytest.raises(DataError, match=r"valid: holds no sequences"):
        build(prepared(valid=[]))
